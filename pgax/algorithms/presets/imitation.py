"""Presets that imitate the policy's own completions, and compare none with another."""

import math

from pgax.algorithms import parts
from pgax.algorithms.spec import Algorithm
from pgax.ops import aggregation


def expert_iteration(
  threshold: float = 0.0,
  normalize_constant: float = 0.0,
  epochs: int = 1,
  minibatches: int = 1,
) -> Algorithm:
  """Expert iteration: supervised steps on the completions that were right.

  `loss = -sum_t w_t logp_t` over completions with `R > threshold`, whose tokens alone count
  in the weights `w`. A step is an iteration: sample, keep what is right, learn it for some
  epochs. Source: Anthony et al. 2017, arXiv 1705.08439; on language models as in
  arXiv 2203.14465 (STaR), 2304.06767 (RAFT) and 2312.06585 (ReST^EM), which start each
  iteration from the first policy, where this goes on from the last.

  Args:
    threshold: a completion is right if its reward, before any shaping, is above this.
    normalize_constant: 0 takes the mean over all tokens that are learned. Another number
      divides the sum over each completion's tokens, and the mean over completions is taken
      (CS336's `masked_normalize`).
    epochs: passes over what was right.
    minibatches: optimizer steps in a pass.

  Returns:
    An `Algorithm` without clip, without baseline and without KL penalty.

  Raises:
    ValueError: if a number is out of its range.
  """
  constant = normalize_constant
  if not 0 <= constant < math.inf:
    raise ValueError(
      f"normalize_constant is {constant}; it must be 0 or positive, and finite"
    )
  return Algorithm(
    advantage=parts.Imitation(),
    surrogate=parts.PolicyGradient(),
    aggregation=parts.FixedLength(constant) if constant else aggregation.token_mean,
    keep=parts.RewardAbove(threshold),
    epochs=epochs,
    minibatches=minibatches,
  )
