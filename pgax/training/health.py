"""Checks of a step's metrics that stop a run, or warn, as soon as it goes wrong."""

import math
import warnings
from collections.abc import Mapping

from pgax.errors import UserError

# Rounding in float32 stays two orders of magnitude below.
_SAMPLER_TOLERANCE = 1e-3
_WATCHED = ("loss", "grad_norm", "param_norm", "value/grad_norm", "value/param_norm")


class SamplerMismatchWarning(UserWarning):
  """Sampler and trainer give the same tokens different probabilities."""


class DivergedError(UserError):
  """An update was not finite; nothing computed from its parameters is meaningful."""


def check_finite(step: int, metrics: Mapping[str, float]) -> None:
  """Stops a run whose loss, gradient or parameters are not finite.

  Args:
    step: number of the step in its stage.
    metrics: metrics of its update.

  Raises:
    DivergedError: with the step and every number that is not finite.
  """
  values = {name: metrics[name] for name in _WATCHED if name in metrics}
  bad = [f"{name} is {x}" for name, x in values.items() if not math.isfinite(x)]
  if bad:
    raise DivergedError(
      f"{' and '.join(bad)} at step {step}; the last checkpoint is from before it. Lower "
      "the learning rate (in another workdir: settings of a run don't change)"
    )


def check_sampler(metrics: Mapping[str, float]) -> None:
  """Warns, once in a process, if sampler and trainer disagree on probabilities.

  Before the first optimizer step of an update, the ratio of the trainer's probability of a
  token to the sampler's is 1 up to rounding. If it is not, the gradient is biased; a
  `sampler_correction` in the algorithm compensates for part of it.

  Args:
    metrics: metrics of an update.
  """
  errors = abs(metrics["ratio/first_step"] - 1), metrics["ratio/sampler_error"]
  if max(errors) > _SAMPLER_TOLERANCE:
    warnings.warn(  # without the numbers, because Python shows the same text once
      "sampler and trainer disagree on the probabilities of the sampled tokens: "
      "ratio/first_step differs from 1, or ratio/sampler_error from 0, by more than "
      f"{_SAMPLER_TOLERANCE} (see metrics.jsonl)",
      SamplerMismatchWarning,
      stacklevel=2,
    )
