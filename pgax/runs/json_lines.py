"""JSON Lines files: one row per line, readable even if the writing process died."""

import json
import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path


class BadRowWarning(UserWarning):
  """A line of a file is no row, and is left out."""


def read_lines(path: Path, valid: Callable[[dict], bool] = lambda row: True) -> list[dict]:
  """Reads the rows of a JSON Lines file, and warns of lines that are none.

  Args:
    path: the file; it need not exist.
    valid: whether an object is a row of this file.

  Returns:
    The rows around the bad lines.
  """
  rows, bad = split_lines(path, valid)
  warn_of_bad(path, bad)
  return rows


def split_lines(
  path: Path, valid: Callable[[dict], bool] = lambda row: True
) -> tuple[list[dict], dict[int, str]]:
  """Reads the rows of a JSON Lines file, and the lines that are none.

  A bad last line without an end is what a dying process leaves; it is neither.

  Args:
    path: the file; it need not exist.
    valid: whether an object is a row of this file.

  Returns:
    The rows, and bad lines by their numbers from 1 on.
  """
  if not path.exists():
    return [], {}
  rows, bad = [], {}
  # A row may end inside a character; it is then no JSON, even with a replacement. Only a
  # newline ends a row: text may hold other separators that splitlines() would split at.
  *lines, unfinished = path.read_text(encoding="utf-8", errors="replace").split("\n")
  for number, line in enumerate(lines, 1):
    if (row := _row(line, valid)) is not None:
      rows.append(row)
    elif line:
      bad[number] = line
  if (row := _row(unfinished, valid)) is not None:
    rows.append(row)
  return rows, bad


def warn_of_bad(path: Path, bad: Mapping[int, str]) -> None:
  """Warns of bad lines of a file, as from `split_lines`."""
  for number, line in bad.items():
    warnings.warn(
      f"line {number} of {path} is no row of it and is left out: {line[:80]!r}",
      BadRowWarning,
      stacklevel=3,
    )


def _row(line: str, valid: Callable[[dict], bool]) -> dict | None:
  try:
    row = json.loads(line, parse_float=_number, parse_int=_number, parse_constant=_number)
    if "\\u" in line:  # half of a pair of surrogates can't be written again
      json.dumps(row, ensure_ascii=False).encode()
  except (ValueError, RecursionError):
    return None
  return row if isinstance(row, dict) and valid(row) else None


def _number(text: str) -> float:
  """Parses a number; those that JSON or a float doesn't have, such as NaN, are none."""
  if not math.isfinite(value := float(text)):
    raise ValueError(f"{text} is not finite")
  return int(text) if text.lstrip("-").isdigit() else value


def write_lines(path: Path, rows: Iterable[Mapping], mode: str = "a") -> None:
  """Writes rows to a JSON Lines file.

  Args:
    path: the file.
    rows: the rows, as JSON values.
    mode: `a` appends, `w` replaces the file.
  """
  with path.open(mode, encoding="utf-8") as file:
    for row in rows:
      file.write(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n")
