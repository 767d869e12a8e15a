"""Reads datasets that TFDS prepared, without TensorFlow."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


@dataclasses.dataclass(frozen=True, eq=False)
class TFDS:
  """Rows of one split of a dataset in `array_record` files.

  Attributes:
    name: folder and split, for error messages.
    source: data source of `tfds.data_source`; text is bytes.
  """

  name: str
  source: Sequence[Mapping[str, Any]]

  def __len__(self) -> int:
    return len(self.source)

  def __getitem__(self, index: int) -> Mapping[str, Any]:
    return self.source[index]

  def where(self, index: int) -> str:
    """Returns the folder, the split and the number of the row, from 1 on."""
    return f"{self.name}, row {index + 1}"


def tfds(name: str, split: str, data_dir: str) -> TFDS:
  """Opens a split of a prepared dataset; nothing is downloaded.

  Args:
    name: name of the dataset, such as `gsm8k` or `gsm8k:1.0.0`.
    split: split of the dataset, such as `train`, `train[:90%]` or `test`.
    data_dir: parent of the dataset's folder.

  Returns:
    The `Rows` of the split.

  Raises:
    ValueError: if the dataset is missing, is not in `array_record` files, or does not have
      the split.
  """
  import tensorflow_datasets  # imported here, because it takes a third of a second

  folder = Path(data_dir)
  dataset = folder / name.partition(":")[0]
  if not dataset.is_dir():
    raise ValueError(f"{folder} has no dataset {name!r} that TFDS prepared")
  for file in sorted(dataset.glob("**/dataset_info.json")):
    info = json.loads(file.read_text(encoding="utf-8"))
    file_format = info.get("fileFormat", "tfrecord")
    if file_format != "array_record":
      raise ValueError(
        f"{file.parent} is in {file_format} files; random access needs "
        "file_format='array_record'"
      )
  try:
    source = tensorflow_datasets.data_source(
      name, split=split, data_dir=str(folder), download=False
    )
  except (ValueError, KeyError, AssertionError) as error:
    reason = str(error).strip("\"'").splitlines()[0]
    raise ValueError(f"{name}/{split} in {folder} can't be read: {reason}") from error
  return TFDS(f"{dataset}/{split}", source)
