"""The KL penalty of a preset, from its coefficient."""

import math
from typing import Literal

from pgax.algorithms.spec import KLPenalty
from pgax.ops import kl
from pgax.types import DivergenceFn


def kl_penalty(
  estimator: DivergenceFn, coef: float, placement: Literal["reward", "loss"]
) -> KLPenalty | None:
  """A penalty with a fixed coefficient, or None if the coefficient is 0.

  Args:
    estimator: per-token estimate of the divergence from the reference.
    coef: coefficient of the penalty.
    placement: `reward` or `loss`; see `KLPenalty`.

  Returns:
    A `KLPenalty` or None.

  Raises:
    ValueError: if the coefficient is negative or not finite.
  """
  if not 0 <= coef < math.inf:
    raise ValueError(
      f"kl_coef is {coef}; it must be finite and at least 0 (0 for no penalty)"
    )
  return KLPenalty(estimator, kl.FixedController(coef), placement) if coef else None
