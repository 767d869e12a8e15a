"""Presets that standardise or centre rewards in their group: GRPO and its kin."""

import dataclasses

from pgax.algorithms import filters, parts
from pgax.algorithms.presets.penalty import kl_penalty
from pgax.algorithms.spec import Algorithm, DynamicSampling
from pgax.ops import aggregation, kl


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
    advantage=parts.GroupStandardised(ddof, eps),
    surrogate=parts.Clipped(clip_low, clip_high),
    aggregation=aggregation.sequence_mean,
    kl=kl_penalty(kl.k3, kl_coef, "loss"),
    epochs=epochs,
    minibatches=minibatches,
  )


def grpo_process(
  clip_low: float = 0.2,
  clip_high: float = 0.2,
  kl_coef: float = 0.04,
  ddof: int = 0,
  eps: float = 1e-6,
  epochs: int = 1,
  minibatches: int = 1,
) -> Algorithm:
  """GRPO with process supervision: every step of a completion is rewarded.

  `A_t = ` sum of the rewards of steps that end at or after `t`, all steps of the group
  standardised together; else as `grpo`. Source: arXiv 2402.03300, section 4.1.3.

  Args:
    clip_low: how far a token's ratio may fall below 1.
    clip_high: how far a token's ratio may rise above 1.
    kl_coef: coefficient of the KL penalty in the loss; 0 for none.
    ddof: 0 for the population's deviation of the rewards, 1 for the sample's.
    eps: added to that deviation.
    epochs: passes over a rollout.
    minibatches: optimizer steps in a pass.

  Returns:
    An `Algorithm`; a run of it needs a function that rewards steps.
  """
  return dataclasses.replace(
    grpo(clip_low, clip_high, kl_coef, ddof, eps, epochs, minibatches),
    advantage=parts.StepsStandardised(ddof, eps),
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
    advantage=parts.GroupCentred(),
    surrogate=parts.Clipped(clip_low, clip_high),
    aggregation=parts.FixedLength(max_length),
    epochs=epochs,
    minibatches=minibatches,
  )


def dapo(
  clip_low: float = 0.2,
  clip_high: float = 0.28,
  max_batches: int = 3,
  overlong_buffer: int | None = None,
  overlong_coef: float = 1.0,
  drop_truncated: bool = False,
  epochs: int = 1,
  minibatches: int = 1,
) -> Algorithm:
  """Decoupled clip and dynamic sampling policy optimization.

  GRPO's advantage, PPO's clip with a higher upper bound, mean over all tokens, no KL
  penalty; groups of equal rewards are dropped and more are sampled, and the reward falls
  towards the length limit. Source: arXiv 2503.14476.

  Args:
    clip_low: how far a token's ratio may fall below 1.
    clip_high: how far a token's ratio may rise above 1.
    max_batches: how many batches of prompts a step may sample; 1 trains on all groups.
    overlong_buffer: tokens before the limit over which the reward falls; by default a
      fifth of the limit.
    overlong_coef: what a completion at the limit loses; 0 for no such shaping.
    drop_truncated: whether completions cut at the limit are left out of the update.
    epochs: passes over a rollout.
    minibatches: optimizer steps in a pass.

  Returns:
    An `Algorithm`.
  """
  return Algorithm(
    advantage=parts.GroupStandardised(),
    surrogate=parts.Clipped(clip_low, clip_high),
    aggregation=aggregation.token_mean,
    shaping=(parts.Overlong(overlong_buffer, overlong_coef),) if overlong_coef else (),
    refill=None if max_batches == 1 else DynamicSampling(max_batches),
    keep=filters.finished if drop_truncated else None,
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
    advantage=parts.GroupStandardised(),
    surrogate=parts.SequenceClipped(clip_low, clip_high),
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
    advantage=parts.GroupStandardised(),
    surrogate=parts.GeometricMean(clip),
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
    advantage=parts.GroupStandardised(),
    surrogate=parts.ClippedWeight(clip_low, clip_high),
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
    advantage=parts.GroupStandardised(),
    surrogate=parts.SoftGate(tau_pos, tau_neg),
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
    advantage=parts.GroupStandardised(),
    surrogate=parts.TrustedTokens(delta),
    aggregation=aggregation.sequence_mean,
    epochs=epochs,
    minibatches=minibatches,
  )
