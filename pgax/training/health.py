"""Signs that a run has gone wrong, told at once rather than after a night."""

import math
from collections.abc import Mapping

from pgax.training.errors import UserError


class DivergedError(UserError):
  """The update was not finite; nothing computed from here on can be trusted."""


def check_finite(step: int, metrics: Mapping[str, float]) -> None:
  """Stops a run whose loss, gradient or parameters are not finite.

  Args:
    step: number of the step, of its own stage.
    metrics: of its update.

  Raises:
    DivergedError: naming the step and every number that is not finite.
  """
  bad = {name: metrics[name] for name in ("loss", "grad_norm", "param_norm")}
  bad = {name: value for name, value in bad.items() if not math.isfinite(value)}
  if bad:
    told = " and ".join(f"{name} is {value}" for name, value in bad.items())
    raise DivergedError(
      f"{told} at step {step}; what is saved is from before it. Lower the learning "
      "rate (in another workdir: settings of a run don't change)"
    )
