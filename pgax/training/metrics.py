"""Metrics and samples on disk: JSON lines and TensorBoard, in step with the checkpoint."""

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path

from pgax.training.records import Sample


def read_lines(path: Path) -> list[dict]:
  """Rows of a JSON-lines file; a last line that was cut off in writing is left out."""
  if not path.exists():
    return []
  rows = []
  # A row may have been cut off inside a character: it is no JSON then, however it is read.
  # Only a newline ends a row: text may hold other line separators, and splitlines() would
  # take them for ends.
  for line in filter(None, path.read_text(encoding="utf-8", errors="replace").split("\n")):
    try:
      rows.append(json.loads(line))
    except json.JSONDecodeError:
      break  # the process died in the middle of this line
  return rows


def read_samples(path: Path) -> list[dict]:
  """Rows of `samples.jsonl`; where an older run does not say what is right, it is said."""
  return [{"right": (row["reward"] or 0) > 0} | row for row in read_lines(path)]


def _finite(value: float) -> float | int | None:
  """JSON has no nan: what is not finite is null."""
  return value if isinstance(value, int) or math.isfinite(value) else None


class Log:
  """Appends rows to files of a run, after cutting them back to the step it goes on from.

  A killed run may have written rows past its last checkpoint. Those steps are done again,
  and must not stand twice.

  Args:
    workdir: of the run.
    last: the last step that is not done again; rows beyond it are dropped.
    stage: a stage with steps of its own, whose metrics go to `STAGE.jsonl` and
      `tensorboard/STAGE`, and which keeps no samples; by default the run itself, with
      `metrics.jsonl`, `samples.jsonl` and `tensorboard`.
  """

  def __init__(self, workdir: Path, last: int, stage: str = ""):
    self._metrics = workdir / f"{stage or 'metrics'}.jsonl"
    self._samples = workdir / "samples.jsonl"
    for path in (self._metrics,) if stage else (self._metrics, self._samples):
      kept = [row for row in read_lines(path) if row["step"] <= last]
      temporary = path.with_suffix(".tmp")
      _write(temporary, kept, "w")
      temporary.replace(path)
    # It imports torch where there is one, which takes longer than all the rest.
    from tensorboardX import SummaryWriter

    self._board = SummaryWriter(str(workdir / "tensorboard" / stage), purge_step=last + 1)

  def metrics(self, step: int, values: Mapping[str, float]) -> None:
    """Writes the scalars of a step."""
    _write(self._metrics, [{"step": step} | {k: _finite(v) for k, v in values.items()}])
    for name, value in values.items():
      self._board.add_scalar(name, value, step)

  def samples(self, step: int, split: str, samples: Iterable[Sample]) -> None:
    """Writes completions of a step; `split` says of which problems."""
    rows = [{"step": step, "split": split} | dataclasses.asdict(s) for s in samples]
    _write(self._samples, rows)

  def flush(self) -> None:
    """Puts what TensorBoard holds back on disk; the rows are there already."""
    self._board.flush()

  def close(self) -> None:
    """Flushes, and ends TensorBoard's writer."""
    self._board.close()


def _write(path: Path, rows: Iterable[Mapping], mode: str = "a") -> None:
  with path.open(mode, encoding="utf-8") as file:
    for row in rows:
      file.write(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n")
