"""The KL penalty of a preset, from the coefficient that it is given."""

import math
from typing import Literal

from pgax.algorithms.spec import KLPenalty
from pgax.ops import kl
from pgax.types import DivergenceFn


def kl_penalty(
  estimator: DivergenceFn, coef: float, placement: Literal["reward", "loss"]
) -> KLPenalty | None:
  """A fixed penalty for leaving the reference, or none at all where the coefficient is 0.

  Args:
    estimator: of the divergence.
    coef: its coefficient.
    placement: where it is charged.

  Returns:
    A `KLPenalty` or None.

  Raises:
    ValueError: if the coefficient is negative or not finite.
  """
  if not 0 <= coef < math.inf:
    raise ValueError(f"kl_coef is {coef}; it must be at least 0, and 0 means no penalty")
  return KLPenalty(estimator, kl.FixedController(coef), placement) if coef else None
