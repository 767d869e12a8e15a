"""Signs that a run has gone wrong, told at once rather than after a night."""

import math
import warnings
from collections.abc import Mapping

from pgax.training.errors import UserError

# Rounding in float32 stays two orders of magnitude below.
_SAMPLER_TOLERANCE = 1e-3


class SamplerMismatchWarning(UserWarning):
  """Sampler and trainer give the same tokens different probabilities."""


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
  watched = ("loss", "grad_norm", "param_norm", "value/grad_norm", "value/param_norm")
  bad = {name: metrics[name] for name in watched if name in metrics}
  bad = {name: value for name, value in bad.items() if not math.isfinite(value)}
  if bad:
    told = " and ".join(f"{name} is {value}" for name, value in bad.items())
    raise DivergedError(
      f"{told} at step {step}; what is saved is from before it. Lower the learning "
      "rate (in another workdir: settings of a run don't change)"
    )


def check_sampler(metrics: Mapping[str, float]) -> None:
  """Warns, once in a process, where the sampler draws from another distribution.

  Before the first optimizer step of an update the ratio of the trainer's probability of a
  token to the sampler's is 1 to rounding, or the two disagree: then the gradient is biased,
  and a `correction` in the algorithm makes up for some of it.

  Args:
    metrics: of an update.
  """
  away = abs(metrics["ratio/first_step"] - 1), metrics["ratio/sampler_error"]
  if max(away) > _SAMPLER_TOLERANCE:
    warnings.warn(  # without the numbers: Python shows the same text once
      "sampler and trainer disagree on the probabilities of the sampled tokens: "
      "ratio/first_step is away from 1, or ratio/sampler_error from 0, by more than "
      f"{_SAMPLER_TOLERANCE} (see metrics.jsonl)",
      SamplerMismatchWarning,
      stacklevel=2,
    )
