"""The protocol of loggers, and how metrics name their stage."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

SUPERVISED = "supervised/"  # prefix of metric names of the supervised stage


class Logger(Protocol):
  """Receives the metrics and samples of a run.

  A class may inherit from it: methods that it leaves out do nothing. Steps are counted in
  their own stage. Metrics of the supervised stage have the prefix
  `supervised/`; those of the stage that follows have none.
  """

  def start(self, config: Mapping[str, Any]) -> None:
    """Begins or continues a run; called once, before anything else.

    Args:
      config: configuration of the run, as JSON values; may be empty.
    """

  def scalars(self, step: int, values: Mapping[str, float]) -> None:
    """Logs the metrics of a step, by name; values may be nan."""

  def samples(self, step: int, split: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Logs completions of a step; `split` is the split of their problems."""

  def flush(self) -> None:
    """Writes everything to disk; called before each checkpoint."""

  def close(self) -> None:
    """Ends the run in this process; called once, even if `start` was not or failed."""


def by_stage(values: Mapping[str, float]) -> dict[str, dict[str, float]]:
  """Groups metrics by stage.

  Args:
    values: metrics of a step, by name.

  Returns:
    Metrics without prefix under `""`, and those of the supervised stage, their prefix
    removed, under `supervised`; stages without metrics are absent.
  """
  stages: dict[str, dict[str, float]] = {}
  for name, value in values.items():
    stage = SUPERVISED[:-1] if name.startswith(SUPERVISED) else ""
    stages.setdefault(stage, {})[name.removeprefix(SUPERVISED)] = value
  return stages
