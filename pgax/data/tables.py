"""Rows of Parquet files and of `datasets` directories, by pyarrow alone."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


@dataclasses.dataclass(frozen=True, eq=False)
class Table:
  """Rows of an Arrow table.

  Attributes:
    name: file or folder that it is from.
    table: a `pyarrow.Table`.
  """

  name: str
  table: Any

  def __len__(self) -> int:
    return self.table.num_rows

  def __getitem__(self, index: int) -> Mapping[str, Any]:
    columns = zip(self.table.column_names, self.table.columns, strict=True)
    return {name: column[index].as_py() for name, column in columns}

  def where(self, index: int) -> str:
    """File and number of the row, from 1 on."""
    return f"{self.name}, row {index + 1}"


def parquet(path: str) -> Table:
  """Reads a Parquet file, or all of a folder.

  Args:
    path: of a file; or of a folder, whose files `*.parquet` are read by name.

  Returns:
    Its `Rows`, held in memory.

  Raises:
    ValueError: if it is no Parquet, or the files of a folder differ in their columns.
    OSError: if it can't be read.
  """
  import pyarrow  # here and below only where it is used: it takes a while to load
  from pyarrow import parquet as pq

  folder = Path(path)
  files = sorted(folder.glob("*.parquet")) if folder.is_dir() else [folder]
  if not files:
    raise ValueError(f"{path} holds no file *.parquet")
  tables = []
  for file in files:
    with file.open("rb") as opened:
      try:
        tables.append(pq.read_table(opened))
      except pyarrow.ArrowException as error:
        raise ValueError(f"{file} can't be read as Parquet: {error}") from None
  return _joined(str(path), tables)


def saved_dataset(path: str, split: str = "") -> Table:
  """Opens a folder that Hugging Face's `datasets` wrote by `save_to_disk`.

  Args:
    path: of the folder.
    split: which split, such as `train`, if the folder has several; empty if it has one.

  Returns:
    Its `Rows`, mapped from the files and not read into memory.

  Raises:
    ValueError: if it is no such folder, or has no such split.
    OSError: if a file can't be read.
  """
  import pyarrow

  folder = _split_folder(Path(path), split)
  none = "is no folder of datasets.save_to_disk"
  state = _read_json(folder / "state.json", none, "_data_files")
  if state.get("_indices_files"):
    raise ValueError(
      f"{folder} keeps its order apart from its rows, as old versions of datasets did; "
      "save it again by a newer one"
    )
  tables = []
  for listed in state["_data_files"]:
    if not isinstance(listed, Mapping) or "filename" not in listed:
      raise ValueError(f"{folder} {none}: state.json lists {listed!r} as a file")
    file = folder / listed["filename"]
    try:
      tables.append(pyarrow.ipc.open_stream(pyarrow.memory_map(str(file))).read_all())
    except pyarrow.ArrowException as error:
      raise ValueError(f"{file} can't be read as Arrow: {error}") from None
  return _joined(str(folder), tables)


def _split_folder(folder: Path, split: str) -> Path:
  """The folder of one split."""
  listed = folder / "dataset_dict.json"
  if not listed.is_file():
    if split:
      raise ValueError(f"split is {split!r} and {folder} has no splits; leave it empty")
    return folder
  splits = _read_json(listed, "can't be read", "splits")["splits"]
  if split not in splits:
    raise ValueError(f"split is {split!r}; {folder} has {', '.join(splits)}")
  return folder / split


def _read_json(path: Path, told: str, needed: str) -> Mapping[str, Any]:
  """The object in a file, whose field `needed` is a list that is not empty."""
  try:
    found = json.loads(path.read_text(encoding="utf-8"))
  except (FileNotFoundError, ValueError) as error:
    raise ValueError(f"{path.parent} {told}: {path.name}: {error}") from None
  listed = found.get(needed) if isinstance(found, Mapping) else None
  if not listed or not isinstance(listed, list):
    raise ValueError(f"{path.parent} {told}: {path.name} has no list {needed!r}")
  return found


def _joined(name: str, tables: list[Any]) -> Table:
  import pyarrow

  try:
    return Table(name, pyarrow.concat_tables(tables))
  except pyarrow.ArrowException as error:
    raise ValueError(f"the files of {name} differ in their columns: {error}") from None
