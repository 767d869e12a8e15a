"""JSON Lines files: one row per line, readable even if the writing process died."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path


def read_lines(path: Path) -> list[dict]:
  """Reads the rows of a JSON Lines file, up to a line that a dying process left unfinished.

  Args:
    path: the file; it need not exist.

  Returns:
    The rows.
  """
  if not path.exists():
    return []
  rows = []
  # A row may end inside a character; it is then no JSON, even with a replacement. Only a
  # newline ends a row: text may hold other separators that splitlines() would split at.
  for line in filter(None, path.read_text(encoding="utf-8", errors="replace").split("\n")):
    try:
      rows.append(json.loads(line))
    except json.JSONDecodeError:
      break
  return rows


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
