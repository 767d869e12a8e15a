"""The well-known algorithms, each a composition of parts."""

import math

from pgax.algorithms.parts import (
  BatchMean,
  Clipped,
  FixedLength,
  GroupCentred,
  GroupStandardised,
  LeaveOneOut,
  PolicyGradient,
)
from pgax.algorithms.spec import Algorithm, KLPenalty
from pgax.ops import aggregation, kl


def _penalty(estimator, coef: float, placement: str) -> KLPenalty | None:
  """A fixed penalty, or none at all where the coefficient is 0."""
  if not 0 <= coef < math.inf:
    raise ValueError(f"kl_coef is {coef}; it must be at least 0, and 0 means no penalty")
  return KLPenalty(estimator, kl.FixedController(coef), placement) if coef else None


def reinforce(epochs: int = 1, minibatches: int = 1) -> Algorithm:
  """REINFORCE with the mean of the batch as its baseline.

  `loss = -sum_t (R - mean R) logp_t`, mean over completions. Source: Williams 1992.

  Args:
    epochs: passes over a rollout.
    minibatches: optimizer steps in a pass.

  Returns:
    An `Algorithm` without clip and without KL penalty.
  """
  return Algorithm(
    advantage=BatchMean(),
    surrogate=PolicyGradient(),
    aggregation=aggregation.sequence_sum,
    epochs=epochs,
    minibatches=minibatches,
  )


def rloo(kl_coef: float = 0.05, epochs: int = 1, minibatches: int = 1) -> Algorithm:
  """REINFORCE leave-one-out.

  `loss = -sum_t (R_k - mean_{j != k} R_j) logp_t` with `R <- R - kl_coef * sum_t k1_t`,
  mean over completions. Source: arXiv 2402.14740.

  Args:
    kl_coef: coefficient of the KL penalty inside the reward; 0 for none.
    epochs: passes over a rollout.
    minibatches: optimizer steps in a pass.

  Returns:
    An `Algorithm`; its group must have at least 2 completions.
  """
  return Algorithm(
    advantage=LeaveOneOut(),
    surrogate=PolicyGradient(),
    aggregation=aggregation.sequence_sum,
    kl=_penalty(kl.k1, kl_coef, "reward"),
    epochs=epochs,
    minibatches=minibatches,
  )


def grpo(
  clip_low: float = 0.2,
  clip_high: float = 0.2,
  kl_coef: float = 0.04,
  ddof: int = 0,
  eps: float = 1e-6,
  epochs: int = 1,
  minibatches: int = 1,
) -> Algorithm:
  """Group relative policy optimization.

  `A = (R - mean R) / (std R + eps)`, PPO's clip on token ratios, `+ kl_coef * k3` in the
  loss, mean over tokens and then over completions. Source: arXiv 2402.03300.

  Args:
    clip_low: how far a token's ratio may fall below 1.
    clip_high: how far a token's ratio may rise above 1.
    kl_coef: coefficient of the KL penalty in the loss; 0 for none.
    ddof: 0 for the population's deviation of the rewards, 1 for the sample's.
    eps: added to that deviation.
    epochs: passes over a rollout.
    minibatches: optimizer steps in a pass.

  Returns:
    An `Algorithm`.
  """
  return Algorithm(
    advantage=GroupStandardised(ddof, eps),
    surrogate=Clipped(clip_low, clip_high),
    aggregation=aggregation.sequence_mean,
    kl=_penalty(kl.k3, kl_coef, "loss"),
    epochs=epochs,
    minibatches=minibatches,
  )


def dr_grpo(
  clip_low: float = 0.2,
  clip_high: float = 0.2,
  max_length: int | None = None,
  epochs: int = 1,
  minibatches: int = 1,
) -> Algorithm:
  """GRPO done right: neither the deviation nor the length divides.

  `A = R - mean R`, PPO's clip on token ratios, sum over tokens divided by a constant and
  mean over completions, no KL penalty. Source: arXiv 2503.20783.

  Args:
    clip_low: how far a token's ratio may fall below 1.
    clip_high: how far a token's ratio may rise above 1.
    max_length: the constant, in tokens; the sampler's limit by default.
    epochs: passes over a rollout.
    minibatches: optimizer steps in a pass.

  Returns:
    An `Algorithm`.
  """
  return Algorithm(
    advantage=GroupCentred(),
    surrogate=Clipped(clip_low, clip_high),
    aggregation=FixedLength(max_length),
    epochs=epochs,
    minibatches=minibatches,
  )
