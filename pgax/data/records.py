"""Rows of data files in random access, and their locations for error messages."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np


class Rows(Protocol):
  """Random access to rows; each row is a mapping from field names to values.

  Opening rows is cheap. A bad row raises ValueError when it is read and not before.
  """

  def __len__(self) -> int: ...

  def __getitem__(self, index: int) -> Mapping[str, Any]: ...

  def where(self, index: int) -> str:
    """Returns the file and the position of a row, for error messages."""


@dataclasses.dataclass(frozen=True, eq=False)
class JSONLines:
  """Lines of a file, each a JSON object; only their offsets are kept in memory.

  Attributes:
    path: path of the file.
    starts: `[rows + 1]` int64, byte offset of each line, and of the end of the last one.
  """

  path: str
  starts: np.ndarray

  def __len__(self) -> int:
    return len(self.starts) - 1

  def __getitem__(self, index: int) -> Mapping[str, Any]:
    start, stop = int(self.starts[:-1][index]), int(self.starts[1:][index])
    with Path(self.path).open("rb") as file:
      file.seek(start)
      line = file.read(stop - start)
    if not line.strip():
      raise ValueError("the line is empty")
    try:
      row = json.loads(line.decode("utf-8"))
    except RecursionError:
      raise ValueError("the JSON is nested too deeply") from None
    if not isinstance(row, Mapping):
      raise ValueError(f"expected a JSON object, not {type(row).__name__}")
    return row

  def where(self, index: int) -> str:
    """Returns the file and the line number, from 1 on."""
    return f"{self.path}:{index + 1}"


def json_lines(path: str) -> JSONLines:
  """Opens a JSON Lines file.

  Args:
    path: path of the file.

  Returns:
    The `Rows` of the file, one per line.

  Raises:
    OSError: if the file cannot be read.
  """
  with Path(path).open("rb") as file:
    lengths = [len(line) for line in file]
  return JSONLines(str(path), np.cumsum([0, *lengths], dtype=np.int64))
