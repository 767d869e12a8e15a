"""Reads Parquet files and folders of Hugging Face `datasets`, with pyarrow alone."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


@dataclasses.dataclass(frozen=True, eq=False)
class Table:
  """Rows of an Arrow table.

  Attributes:
    name: file or folder of the table.
    table: `pyarrow.Table`.
  """

  name: str
  table: Any

  def __len__(self) -> int:
    return self.table.num_rows

  def __getitem__(self, index: int) -> Mapping[str, Any]:
    columns = zip(self.table.column_names, self.table.columns, strict=True)
    return {name: column[index].as_py() for name, column in columns}

  def where(self, index: int) -> str:
    """Returns the file and the number of the row, from 1 on."""
    return f"{self.name}, row {index + 1}"


def parquet(path: str) -> Table:
  """Reads a Parquet file, or all Parquet files of a folder.

  Args:
    path: path of a file, or of a folder whose files `*.parquet` are read in order of name.

  Returns:
    The `Rows` of the files, in memory.

  Raises:
    ValueError: if a file is not Parquet, or the files differ in their columns.
    OSError: if a file cannot be read.
  """
  import pyarrow  # imported inside functions, because importing it is slow
  from pyarrow import parquet as pq

  folder = Path(path)
  files = sorted(folder.glob("*.parquet")) if folder.is_dir() else [folder]
  if not files:
    raise ValueError(f"{path} has no file *.parquet")
  tables = []
  for file in files:
    with file.open("rb") as opened:
      try:
        tables.append(pq.read_table(opened))
      except pyarrow.ArrowException as error:
        raise ValueError(f"{file} can't be read as Parquet: {error}") from None
  return _concatenate(str(path), tables)


def saved_dataset(path: str, split: str = "") -> Table:
  """Opens a folder that `save_to_disk` of Hugging Face's `datasets` wrote.

  Args:
    path: path of the folder.
    split: name of the split, such as `train`; empty if the folder has no splits.

  Returns:
    The `Rows` of the folder, memory-mapped.

  Raises:
    ValueError: if the folder is not of this kind, or does not have the split.
    OSError: if a file cannot be read.
  """
  import pyarrow

  folder = _split_folder(Path(path), split)
  problem = "is not a folder of datasets.save_to_disk"
  state = _read_json(folder / "state.json", problem, "_data_files")
  if state.get("_indices_files"):
    raise ValueError(
      f"{folder} stores its order separately from its rows, as old versions of datasets "
      "did; save it again with a newer version"
    )
  tables = []
  for entry in state["_data_files"]:
    if not isinstance(entry, Mapping) or "filename" not in entry:
      raise ValueError(f"{folder} {problem}: state.json lists {entry!r} as a file")
    file = folder / entry["filename"]
    try:
      tables.append(pyarrow.ipc.open_stream(pyarrow.memory_map(str(file))).read_all())
    except pyarrow.ArrowException as error:
      raise ValueError(f"{file} can't be read as Arrow: {error}") from None
  return _concatenate(str(folder), tables)


def _split_folder(folder: Path, split: str) -> Path:
  """Returns the folder of one split."""
  index = folder / "dataset_dict.json"
  if not index.is_file():
    if split:
      raise ValueError(f"split is {split!r}, but {folder} has no splits; leave it empty")
    return folder
  splits = _read_json(index, "can't be read", "splits")["splits"]
  if split not in splits:
    raise ValueError(f"split is {split!r}; {folder} has {', '.join(splits)}")
  return folder / split


def _read_json(path: Path, problem: str, field: str) -> Mapping[str, Any]:
  """Reads a JSON object in which a field must be a nonempty list."""
  try:
    value = json.loads(path.read_text(encoding="utf-8"))
  except (FileNotFoundError, ValueError) as error:
    raise ValueError(f"{path.parent} {problem}: {path.name}: {error}") from None
  items = value.get(field) if isinstance(value, Mapping) else None
  if not items or not isinstance(items, list):
    raise ValueError(f"{path.parent} {problem}: {path.name} has no list {field!r}")
  return value


def _concatenate(name: str, tables: list[Any]) -> Table:
  import pyarrow

  try:
    return Table(name, pyarrow.concat_tables(tables))
  except pyarrow.ArrowException as error:
    raise ValueError(f"the files of {name} differ in their columns: {error}") from None
