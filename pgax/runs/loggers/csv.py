"""Metrics as CSV files, for spreadsheets and data frames."""

import csv
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from pgax.runs.loggers.protocol import Logger, by_stage
from pgax.runs.workdir import DAMAGED


class Csv(Logger):
  """Writes `metrics.csv` and `supervised.csv`, one column per metric.

  A file is written anew when a metric appears for the first time; otherwise rows are
  appended. Metrics that a step does not have are empty. A run that continues leaves out
  rows that can't be read, and keeps such a file in the folder `damaged`.

  Args:
    workdir: folder of the run.
    last_steps: see `JsonLines`.
  """

  def __init__(self, workdir: Path, last_steps: Mapping[str, int]):
    self._workdir, self._columns = workdir, {}
    for stage, last in last_steps.items():
      path, rows = self._path(stage), self._read(stage)
      good = [row for row in rows if (row.get("step") or "").isdecimal()]
      if len(good) < len(rows):
        (workdir / DAMAGED).mkdir(exist_ok=True)
        shutil.copyfile(path, workdir / DAMAGED / path.name)
      if path.exists():
        self._rewrite(stage, [row for row in good if int(row["step"]) <= last])

  def scalars(self, step: int, values: Mapping[str, float]) -> None:
    """Appends a row."""
    for stage, metrics in by_stage(values).items():
      row = {"step": step} | metrics
      if stage not in self._columns:
        self._columns[stage] = list(dict.fromkeys(k for r in self._read(stage) for k in r))
      if not row.keys() <= set(self._columns[stage]):
        self._rewrite(stage, [*self._read(stage), row])
        continue
      with self._path(stage).open("a", newline="", encoding="utf-8") as file:
        csv.DictWriter(file, self._columns[stage]).writerow(row)

  def _path(self, stage: str) -> Path:
    return self._workdir / f"{stage or 'metrics'}.csv"

  def _read(self, stage: str) -> list[dict[str, str]]:
    path = self._path(stage)
    if not path.exists():
      return []
    with path.open(newline="", encoding="utf-8", errors="replace") as file:
      # A killed process may have left a row unfinished.
      return [row for row in _rows(file) if None not in row.values()]

  def _rewrite(self, stage: str, rows: Sequence[Mapping[str, Any]]) -> None:
    columns = list(dict.fromkeys(["step", *(name for row in rows for name in row)]))
    temporary = self._path(stage).with_suffix(".tmp")
    with temporary.open("w", newline="", encoding="utf-8") as file:
      writer = csv.DictWriter(file, columns)
      writer.writeheader()
      writer.writerows(rows)
    temporary.replace(self._path(stage))
    self._columns[stage] = columns


def _rows(file: TextIO) -> Iterator[dict]:
  """Reads rows; one that is no CSV is empty."""
  reader = csv.DictReader(file)
  while True:
    try:
      yield next(reader)
    except csv.Error:  # such as a field of 200,000 characters
      yield {}
    except StopIteration:
      return
