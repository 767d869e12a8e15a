"""How far a run is: its stage, and the step within it."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pgax.errors import UserError
from pgax.learner.state import REINFORCEMENT, SUPERVISED, TrainState
from pgax.runs.checkpoint import has_checkpoints, read_checkpoints

_NAMES = {SUPERVISED: "supervised", REINFORCEMENT: "reinforcement"}
_KEY = "progress"


@dataclasses.dataclass(frozen=True)
class Progress:
  """Stage and step of a run.

  Attributes:
    stage: `supervised` or `reinforcement`.
    step: number of steps done in this stage.
  """

  stage: str
  step: int

  @classmethod
  def of(cls, state: TrainState) -> "Progress":
    """Returns the progress of a state."""
    return cls(_NAMES[int(state.stage)], int(state.step))

  @classmethod
  def from_json(cls, data: Mapping[str, Any]) -> "Progress":
    """Reads the progress from a checkpoint's JSON data.

    Raises:
      UserError: if the data has none.
    """
    try:
      return cls(**data[_KEY])
    except (KeyError, TypeError):
      raise UserError(
        f"the latest checkpoint does not say how far its run is; its data is {data!r:.200}"
      ) from None

  def to_json(self) -> dict[str, Any]:
    """Returns JSON data to save with a checkpoint."""
    return {_KEY: dataclasses.asdict(self)}

  @property
  def is_supervised(self) -> bool:
    """Whether the run is in its supervised stage."""
    return self.stage == _NAMES[SUPERVISED]

  @property
  def last_steps(self) -> dict[str, int]:
    """The last step of each logged stage that is not done again (see `runs.loggers`).

    The evaluation before a stage's first step is done again by a run that resumes there.
    """
    last = self.step or -1
    if self.is_supervised:
      return {_NAMES[SUPERVISED]: last, "": -1}
    return {"": last}


def saved_progress(workdir: Path) -> Progress | None:
  """Reads how far a run is, leaving its folder unchanged.

  Args:
    workdir: folder of the run; it need not exist.

  Returns:
    The progress of its latest checkpoint; None without one.
  """
  if not has_checkpoints(workdir):
    return None
  with read_checkpoints(workdir) as checkpoints:
    if checkpoints.latest() is None:
      return None
    return Progress.from_json(checkpoints.restore_data())
