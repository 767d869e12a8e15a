"""The well-known algorithms, each a composition of parts."""

import math

from pgax.algorithms.parts import (
  BatchMean,
  Clipped,
  ClippedWeight,
  FixedLength,
  GeometricMean,
  GroupCentred,
  GroupStandardised,
  LeaveOneOut,
  LengthWeighted,
  PolicyGradient,
  RelativeToMean,
  SequenceClipped,
  SoftGate,
  TrustedTokens,
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


def gspo(
  clip_low: float = 3e-4,
  clip_high: float = 4e-4,
  epochs: int = 1,
  minibatches: int = 1,
) -> Algorithm:
  """Group sequence policy optimization.

  GRPO's advantage, and PPO's clip on `s = exp(mean_t (logp - old_logp))`, one ratio for a
  sequence; mean over sequences, no KL penalty. Source: arXiv 2507.18071.

  Args:
    clip_low: how far a sequence's ratio may fall below 1.
    clip_high: how far a sequence's ratio may rise above 1.
    epochs: passes over a rollout.
    minibatches: optimizer steps in a pass.

  Returns:
    An `Algorithm`.
  """
  return Algorithm(
    advantage=GroupStandardised(),
    surrogate=SequenceClipped(clip_low, clip_high),
    aggregation=aggregation.sequence_mean,
    epochs=epochs,
    minibatches=minibatches,
  )


def gmpo(
  clip: float = 0.4,
  epochs: int = 1,
  minibatches: int = 1,
) -> Algorithm:
  """Geometric-mean policy optimization.

  GRPO's advantage, and `-A * exp(mean_t l_t)` with token log-ratios `l_t` bounded on the
  side that PPO would clip; mean over sequences, no KL penalty. Source: arXiv 2507.20673.

  Args:
    clip: bound of a token's log-ratio, nats.
    epochs: passes over a rollout.
    minibatches: optimizer steps in a pass.

  Returns:
    An `Algorithm`.
  """
  return Algorithm(
    advantage=GroupStandardised(),
    surrogate=GeometricMean(clip),
    aggregation=aggregation.sequence_mean,
    epochs=epochs,
    minibatches=minibatches,
  )


def cispo(
  clip_low: float = 1.0,
  clip_high: float = 0.28,
  epochs: int = 1,
  minibatches: int = 1,
) -> Algorithm:
  """Clipped importance-sampling policy optimization.

  GRPO's advantage, and `-sg(clip(ratio)) * A * logp`: the weight is clipped, the gradient
  never is; mean over all tokens, no KL penalty. Source: arXiv 2506.13585.

  Args:
    clip_low: how far a token's weight may fall below 1; 1 for no lower bound.
    clip_high: how far a token's weight may rise above 1.
    epochs: passes over a rollout.
    minibatches: optimizer steps in a pass.

  Returns:
    An `Algorithm`.
  """
  return Algorithm(
    advantage=GroupStandardised(),
    surrogate=ClippedWeight(clip_low, clip_high),
    aggregation=aggregation.token_mean,
    epochs=epochs,
    minibatches=minibatches,
  )


def sapo(
  tau_pos: float = 1.0,
  tau_neg: float = 1.05,
  epochs: int = 1,
  minibatches: int = 1,
) -> Algorithm:
  """Soft adaptive policy optimization.

  GRPO's advantage, and `-A * (4 / tau) * sigmoid(tau * (ratio - 1))`; mean over tokens and
  then over completions, no KL penalty. Source: arXiv 2511.20347.

  Args:
    tau_pos: sharpness of the gate for positive advantages.
    tau_neg: sharpness of the gate for the others.
    epochs: passes over a rollout.
    minibatches: optimizer steps in a pass.

  Returns:
    An `Algorithm`.
  """
  return Algorithm(
    advantage=GroupStandardised(),
    surrogate=SoftGate(tau_pos, tau_neg),
    aggregation=aggregation.sequence_mean,
    epochs=epochs,
    minibatches=minibatches,
  )


def dppo(
  delta: float = 0.2,
  epochs: int = 1,
  minibatches: int = 1,
) -> Algorithm:
  """The clip replaced by a bound on how far a token's probability moves.

  GRPO's advantage, and `-A * ratio` whose gradient is cut where the probability has moved
  by more than `delta` in its direction; mean over tokens and then over completions, no KL
  penalty. Source: DPPO, arXiv 2602.04879.

  Args:
    delta: how far a token's probability may move.
    epochs: passes over a rollout.
    minibatches: optimizer steps in a pass.

  Returns:
    An `Algorithm`.
  """
  return Algorithm(
    advantage=GroupStandardised(),
    surrogate=TrustedTokens(delta),
    aggregation=aggregation.sequence_mean,
    epochs=epochs,
    minibatches=minibatches,
  )


def opo(
  epochs: int = 1,
  minibatches: int = 1,
) -> Algorithm:
  """On-policy optimization with the baseline of least variance.

  `A = R - sum_i l_i R_i / sum_i l_i`, the policy gradient, sum over tokens and mean over
  completions, no KL penalty. Source: arXiv 2505.23585.

  Args:
    epochs: passes over a rollout.
    minibatches: optimizer steps in a pass.

  Returns:
    An `Algorithm`.
  """
  return Algorithm(
    advantage=LengthWeighted(),
    surrogate=PolicyGradient(),
    aggregation=aggregation.sequence_sum,
    epochs=epochs,
    minibatches=minibatches,
  )


def maxrl(
  epochs: int = 1,
  minibatches: int = 1,
) -> Algorithm:
  """Maximum-likelihood reinforcement learning, for binary rewards.

  `A = (R - mean R) / mean R`, the policy gradient, sum over tokens and mean over
  completions, no KL penalty. Source: arXiv 2602.02710.

  Args:
    epochs: passes over a rollout.
    minibatches: optimizer steps in a pass.

  Returns:
    An `Algorithm`.
  """
  return Algorithm(
    advantage=RelativeToMean(),
    surrogate=PolicyGradient(),
    aggregation=aggregation.sequence_sum,
    epochs=epochs,
    minibatches=minibatches,
  )
