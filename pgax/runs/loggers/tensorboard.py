"""Metrics as TensorBoard events."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pgax.runs.loggers.protocol import Logger, by_stage


class TensorBoard(Logger):
  """Writes event files to `tensorboard/`, those of supervised steps to a subfolder.

  Args:
    workdir: folder of the run.
    last_steps: see `JsonLines`; TensorBoard hides events beyond these steps.
  """

  def __init__(self, workdir: Path, last_steps: Mapping[str, int]):
    self._folder, self._last_steps = workdir / "tensorboard", last_steps
    self._writers = {}

  def scalars(self, step: int, values: Mapping[str, float]) -> None:
    """Adds each metric as a scalar."""
    for stage, metrics in by_stage(values).items():
      for name, value in metrics.items():
        self._writer(stage).add_scalar(name, value, step)

  def flush(self) -> None:
    """Writes the events that are still in memory."""
    for writer in self._writers.values():
      writer.flush()

  def close(self) -> None:
    """Flushes and closes the event files."""
    for writer in self._writers.values():
      writer.close()

  def _writer(self, stage: str) -> Any:
    if stage not in self._writers:
      # It imports torch if that is installed, which takes longer than everything else.
      from tensorboardX import SummaryWriter

      purge = self._last_steps.get(stage, -1) + 1
      self._writers[stage] = SummaryWriter(str(self._folder / stage), purge_step=purge)
    return self._writers[stage]
