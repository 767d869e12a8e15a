"""Metrics and samples as JSON Lines: the record of a run that everything reads."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pgax.runs.json_lines import split_lines, warn_of_bad, write_lines
from pgax.runs.loggers.protocol import Logger, by_stage
from pgax.runs.loggers.schema import SAMPLES, is_metrics, is_sample, metrics_file
from pgax.runs.workdir import DAMAGED


class JsonLines(Logger):
  """Writes `metrics.jsonl`, `supervised.jsonl` and `samples.jsonl`.

  A killed run may have written rows past its last checkpoint. Those steps are done again,
  so their rows are removed first. Lines that are no rows are moved to the folder `damaged`.

  Args:
    workdir: folder of the run.
    last_steps: last step of each stage (`""` or `supervised`) that is not done again; rows
      beyond it are removed. Stages that are absent keep their rows.
  """

  def __init__(self, workdir: Path, last_steps: Mapping[str, int]):
    self._workdir = workdir
    for stage, last in last_steps.items():
      paths = (self._path(stage),) if stage else (self._path(), workdir / SAMPLES)
      for path in paths:
        if path.exists():
          _truncate(path, last)

  def start(self, config: Mapping[str, Any]) -> None:
    """Creates the files, so that a run without rows has them too."""
    del config
    for path in (self._path(), self._workdir / SAMPLES):
      path.touch()

  def scalars(self, step: int, values: Mapping[str, float]) -> None:
    """Appends a row; values that are not finite are null, since JSON has no nan."""
    for stage, metrics in by_stage(values).items():
      row = {name: _json_number(value) for name, value in metrics.items()}
      write_lines(self._path(stage), [{"step": step} | row])

  def samples(self, step: int, split: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Appends a row for each completion."""
    head = {"step": step, "split": split}
    write_lines(self._workdir / SAMPLES, [head | dict(row) for row in rows])

  def _path(self, stage: str = "") -> Path:
    return self._workdir / metrics_file(stage)


def _truncate(path: Path, last: int) -> None:
  rows, bad = split_lines(path, is_sample if path.name == SAMPLES else is_metrics)
  if bad:
    warn_of_bad(path, bad)
    damaged = path.parent / DAMAGED / path.name
    damaged.parent.mkdir(exist_ok=True)
    with damaged.open("a", encoding="utf-8") as file:
      file.writelines(f"{line}\n" for line in bad.values())
  temporary = path.with_suffix(".tmp")
  write_lines(temporary, [row for row in rows if row["step"] <= last], "w")
  temporary.replace(path)


def _json_number(value: float) -> float | int | None:
  return value if isinstance(value, int) or math.isfinite(value) else None
