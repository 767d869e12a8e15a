"""Presets that imitate the policy's own completions, without comparing them."""

import math

from pgax.algorithms import parts
from pgax.algorithms.presets.schedule import with_schedule
from pgax.algorithms.spec import Algorithm
from pgax.ops import aggregation

__all__ = ["expert_iteration"]


@with_schedule()
def expert_iteration(
  threshold: float = 0.0,
  normalize_constant: float = 0.0,
) -> Algorithm:
  """Expert iteration: supervised steps on correct completions.

  `loss = -sum_t w_t logp_t` over completions with `R > threshold`, whose tokens alone count
  in the weights `w`. A step is an iteration: sample, keep what is right, learn it for some
  epochs. Source: Anthony et al. 2017, arXiv 1705.08439; on language models as in
  arXiv 2203.14465 (STaR), 2304.06767 (RAFT) and 2312.06585 (ReST^EM).

  Not as in the source: each iteration continues from the last policy instead of starting
  from the first.

  Args:
    threshold: a completion is correct if its unshaped reward exceeds this.
    normalize_constant: 0 takes the mean over all tokens of correct completions. Any other
      constant divides the sum over each completion's tokens, followed by the mean over
      completions (CS336's `masked_normalize`).

  Returns:
    An `Algorithm` without clip, baseline and KL penalty.

  Raises:
    ValueError: if `threshold` is not finite, or `normalize_constant` is negative or not
      finite.
  """
  constant = normalize_constant
  if not 0 <= constant < math.inf:
    raise ValueError(
      f"normalize_constant is {constant}; it must be 0 or positive, and finite"
    )
  return Algorithm(
    advantage=parts.UnitAdvantage(),
    surrogate=parts.PolicyGradient(),
    aggregation=parts.FixedLength(constant) if constant else aggregation.token_mean,
    completion_filter=parts.RewardAbove(threshold),
  )
