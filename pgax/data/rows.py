"""Rows of files, by their index: what a problem is read from, and where it stands."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np


class Rows(Protocol):
  """Rows in random access, cheap to open; each a mapping from the names of its fields.

  What can't be read as a row raises ValueError when it is asked for, and not before.
  """

  def __len__(self) -> int: ...

  def __getitem__(self, index: int) -> Mapping[str, Any]: ...

  def where(self, index: int) -> str:
    """File and place of a row, for people."""


@dataclasses.dataclass(frozen=True, eq=False)
class JSONLines:
  """Lines of a file, each a JSON object; only their places are kept in memory.

  Attributes:
    path: of the file.
    starts: `[rows + 1]` int64, the byte at which each line starts, and the end of the last.
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
    """File and number of the line, from 1 on."""
    return f"{self.path}:{index + 1}"


def json_lines(path: str) -> JSONLines:
  """Opens a file of JSON lines.

  Args:
    path: of the file.

  Returns:
    Its `Rows`, one a line.

  Raises:
    OSError: if the file can't be read.
  """
  with Path(path).open("rb") as file:
    lengths = [len(line) for line in file]
  return JSONLines(str(path), np.cumsum([0, *lengths], dtype=np.int64))
