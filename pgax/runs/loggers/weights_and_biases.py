"""Metrics and samples in Weights & Biases; an extra."""

import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pgax.runs.loggers.protocol import SUPERVISED, Logger

_RUN_ID = "wandb_run_id"
_COLUMNS = ("prompt", "completion", "ground_truth", "reward", "right")


class WeightsAndBiases(Logger):
  """Logs to Weights & Biases, online or offline as set by its environment variables.

  The run's id is kept in the workdir, so that a resumed run continues the same curves.
  W&B can't remove rows: steps that a killed run did after its last checkpoint appear twice.

  Args:
    workdir: folder of the run.
    last_steps: see `JsonLines`; ignored.
  """

  def __init__(self, workdir: Path, last_steps: Mapping[str, int]):
    del last_steps
    self._workdir, self._run = workdir, None

  def start(self, config: Mapping[str, Any]) -> None:
    """Starts or resumes the run."""
    import wandb  # lazily, because it is an extra

    path = self._workdir / _RUN_ID
    if not path.exists():
      path.write_text(uuid.uuid4().hex)
    self._run = wandb.init(
      project="pgax",
      name=config.get("name"),
      id=path.read_text(),
      resume="allow",
      dir=str(self._workdir),
      config=dict(config),
    )
    for prefix in ("", SUPERVISED):  # each stage has its own axis
      self._run.define_metric(f"{prefix}step")
      self._run.define_metric(f"{prefix}*", step_metric=f"{prefix}step")

  def scalars(self, step: int, values: Mapping[str, float]) -> None:
    """Logs the metrics of a step."""
    supervised = any(name.startswith(SUPERVISED) for name in values)
    self._run.log(dict(values) | {f"{SUPERVISED * supervised}step": step})

  def samples(self, step: int, split: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Logs completions as a table."""
    if not rows:
      return
    import wandb

    data = [[row.get(name) for name in _COLUMNS] for row in rows]
    table = wandb.Table(columns=list(_COLUMNS), data=data)
    self._run.log({f"samples/{split}": table, "step": step})

  def close(self) -> None:
    """Finishes the run."""
    if self._run is not None:
      self._run.finish()
