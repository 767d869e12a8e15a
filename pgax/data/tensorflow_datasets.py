"""Rows of datasets that TFDS prepared, read without TensorFlow."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


@dataclasses.dataclass(frozen=True, eq=False)
class TFDS:
  """Rows of one split of a dataset in `array_record` files.

  Attributes:
    name: folder and split, for people.
    source: what `tfds.data_source` gave; texts are bytes.
  """

  name: str
  source: Sequence[Mapping[str, Any]]

  def __len__(self) -> int:
    return len(self.source)

  def __getitem__(self, index: int) -> Mapping[str, Any]:
    return self.source[index]

  def where(self, index: int) -> str:
    """Folder, split and number of the row, from 1 on."""
    return f"{self.name}, row {index + 1}"


def tfds(name: str, split: str, data_dir: str) -> TFDS:
  """Opens a split of a dataset that is prepared already; nothing is downloaded.

  Args:
    name: of the dataset, such as `gsm8k` or `gsm8k:1.0.0`.
    split: which rows, such as `train`, `train[:90%]` or `test`.
    data_dir: folder that holds the folder of the dataset.

  Returns:
    Its `Rows`.

  Raises:
    ValueError: if it is not there, not in `array_record` files, or has no such split.
  """
  import tensorflow_datasets  # only where it is used: it takes a third of a second

  folder = Path(data_dir)
  dataset = folder / name.partition(":")[0]
  if not dataset.is_dir():
    raise ValueError(f"{folder} holds no dataset {name!r} that TFDS prepared")
  for file in sorted(dataset.glob("**/dataset_info.json")):
    kept = json.loads(file.read_text(encoding="utf-8")).get("fileFormat", "tfrecord")
    if kept != "array_record":
      raise ValueError(
        f"{file.parent} is in {kept} files; random access needs file_format='array_record'"
      )
  try:
    source = tensorflow_datasets.data_source(
      name, split=split, data_dir=str(folder), download=False
    )
  except (ValueError, KeyError, AssertionError) as error:
    told = str(error).strip("\"'").splitlines()[0]
    raise ValueError(f"{name}/{split} in {folder} can't be read: {told}") from error
  return TFDS(f"{dataset}/{split}", source)
