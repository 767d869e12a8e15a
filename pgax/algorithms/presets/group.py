"""Presets that normalize or center rewards within their group: GRPO and its variants."""

import dataclasses
from typing import Literal

from pgax.algorithms import filters, parts
from pgax.algorithms.presets.penalty import kl_penalty
from pgax.algorithms.presets.schedule import with_schedule
from pgax.algorithms.spec import Algorithm, DynamicSampling
from pgax.ops import aggregation, kl

__all__ = [
  "grpo",
  "grpo_process",
  "gdpo",
  "dr_grpo",
  "dapo",
  "gspo",
  "gmpo",
  "cispo",
  "sapo",
  "dppo",
]


@with_schedule()
def grpo(
  clip_low: float = 0.2,
  clip_high: float = 0.2,
  kl_coef: float = 0.04,
  ddof: int = 0,
  eps: float = 1e-6,
  scale_rewards: Literal["group", "batch", "none"] = "group",
) -> Algorithm:
  """GRPO: group relative policy optimization.

  `A = (R - mean R) / (std R + eps)`, PPO's clip on token ratios, `+ kl_coef * k3` in the
  loss, mean over the tokens of a completion and then over completions. Source: arXiv
  2402.03300.

  Args:
    clip_low: largest distance of a token's ratio below 1.
    clip_high: largest distance of a token's ratio above 1.
    kl_coef: coefficient of the KL penalty in the loss; 0 for no penalty.
    ddof: 0 for the population's standard deviation of the rewards, 1 for the sample's.
    eps: constant added to the standard deviation, in units of reward.
    scale_rewards: whose standard deviation divides the rewards: `group`, `batch` (see
      `advantages.batch_scaled`), or `none` for no division.

  Returns:
    An `Algorithm`.

  Raises:
    ValueError: if `scale_rewards` is none of these.
  """
  if scale_rewards not in ("group", "batch", "none"):
    raise ValueError(
      f"scale_rewards is {scale_rewards!r}; allowed are 'group', 'batch' and 'none'"
    )
  centered = scale_rewards == "none"
  return Algorithm(
    advantage=parts.GroupCentered()
    if centered
    else parts.GroupNormalized(ddof, eps, scale_rewards),
    surrogate=parts.Clipped(clip_low, clip_high),
    aggregation=aggregation.sequence_mean,
    kl=kl_penalty(kl.k3, kl_coef, "loss"),
  )


@with_schedule()
def grpo_process(
  clip_low: float = 0.2,
  clip_high: float = 0.2,
  kl_coef: float = 0.04,
  ddof: int = 0,
  eps: float = 1e-6,
) -> Algorithm:
  """GRPO with process supervision: every step of a completion is rewarded.

  `A_t` is the sum of the rewards of the steps that end at or after `t`, normalized over all
  steps of the group; all other parts are those of `grpo`. Source: arXiv 2402.03300, section
  4.1.3.

  Not as in the source: steps are rewarded by a function instead of a trained process
  reward model.

  Args:
    clip_low: largest distance of a token's ratio below 1.
    clip_high: largest distance of a token's ratio above 1.
    kl_coef: coefficient of the KL penalty in the loss; 0 for no penalty.
    ddof: 0 for the population's standard deviation of the rewards, 1 for the sample's.
    eps: constant added to the standard deviation, in units of reward.

  Returns:
    An `Algorithm`; it needs a function that rewards steps.
  """
  return dataclasses.replace(
    grpo(clip_low, clip_high, kl_coef),
    advantage=parts.ProcessNormalized(ddof, eps),
  )


@with_schedule()
def gdpo(
  components: tuple[str, ...] = ("accuracy", "format"),
  weights: tuple[float, ...] = (),
  clip_low: float = 0.2,
  clip_high: float = 0.2,
  kl_coef: float = 0.04,
) -> Algorithm:
  """GDPO: GRPO with each component of the reward normalized by itself.

  `A = whiten(sum_k w_k (R_k - mean R_k) / std R_k)`, with the mean and the deviation of
  each component in the group; all other parts are those of `grpo`. Source: arXiv
  2601.05242.

  Not as in the source: all parts but the advantage are those of `grpo` here.

  Args:
    components: names of scores of the reward function; its `reward` is not trained on.
    weights: weight `w_k` of each component; empty for equal weights.
    clip_low: largest distance of a token's ratio below 1.
    clip_high: largest distance of a token's ratio above 1.
    kl_coef: coefficient of the KL penalty in the loss; 0 for no penalty.

  Returns:
    An `Algorithm`; the reward function must return these scores.

  Raises:
    ValueError: if there are weights, and not one for each component.
  """
  if not components or (weights and len(weights) != len(components)):
    raise ValueError(
      f"components is {components} and weights is {weights}; there must be a component, "
      "and a weight for each or no weights"
    )
  return dataclasses.replace(
    grpo(clip_low, clip_high, kl_coef),
    advantage=parts.DecoupledNormalized(tuple(weights)),
    components=tuple(components),
  )


@with_schedule()
def dr_grpo(
  clip_low: float = 0.2,
  clip_high: float = 0.2,
  max_length: int | None = None,
) -> Algorithm:
  """Dr. GRPO: GRPO without division by the standard deviation or the length.

  `A = R - mean R`, PPO's clip on token ratios, sum over tokens divided by a constant, then
  mean over completions; no KL penalty. Source: arXiv 2503.20783.

  Args:
    clip_low: largest distance of a token's ratio below 1.
    clip_high: largest distance of a token's ratio above 1.
    max_length: the constant, in tokens; None for the sampler's limit.

  Returns:
    An `Algorithm`.
  """
  return Algorithm(
    advantage=parts.GroupCentered(),
    surrogate=parts.Clipped(clip_low, clip_high),
    aggregation=parts.FixedLength(max_length),
  )


@with_schedule()
def dapo(
  clip_low: float = 0.2,
  clip_high: float = 0.28,
  max_batches: int = 3,
  overlong_buffer: int | None = None,
  overlong_coef: float = 1.0,
  drop_truncated: bool = False,
) -> Algorithm:
  """DAPO: decoupled clip and dynamic sampling policy optimization.

  GRPO's advantage, PPO's clip with a higher upper bound, mean over all tokens, no KL
  penalty. Groups of equal rewards are dropped and further prompts sampled, and the reward
  falls toward the length limit. Source: arXiv 2503.14476.

  Not as in the source: at most 3 batches are sampled instead of as many as it takes, the
  paper's rewards are 1 and -1 (here they are those of the reward function), and there is
  one optimizer step per rollout by default instead of 16.

  Args:
    clip_low: largest distance of a token's ratio below 1.
    clip_high: largest distance of a token's ratio above 1.
    max_batches: maximum number of prompt batches that a step may sample; 1 trains on
      all groups.
    overlong_buffer: number of tokens before the limit over which the reward falls; None
      for a fifth of the limit.
    overlong_coef: penalty of a completion at the limit; 0 for no such shaping.
    drop_truncated: whether completions cut at the limit are excluded from the update.

  Returns:
    An `Algorithm`.
  """
  return Algorithm(
    advantage=parts.GroupNormalized(),
    surrogate=parts.Clipped(clip_low, clip_high),
    aggregation=aggregation.token_mean,
    shaping=(parts.Overlong(overlong_buffer, overlong_coef),) if overlong_coef else (),
    dynamic_sampling=None if max_batches == 1 else DynamicSampling(max_batches),
    completion_filter=filters.finished if drop_truncated else None,
  )


@with_schedule()
def gspo(
  clip_low: float = 3e-4,
  clip_high: float = 4e-4,
) -> Algorithm:
  """GSPO: group sequence policy optimization.

  GRPO's advantage, and PPO's clip on `s = exp(mean_t (logp - old_logp))`, one ratio for
  each sequence; mean over sequences, no KL penalty. Source: arXiv 2507.18071.

  Not as in the source: one optimizer step per rollout by default, where the gradient is
  that of GRPO without a penalty; the paper splits a rollout into 4 minibatches.

  Args:
    clip_low: largest distance of a sequence's ratio below 1.
    clip_high: largest distance of a sequence's ratio above 1.

  Returns:
    An `Algorithm`.
  """
  return Algorithm(
    advantage=parts.GroupNormalized(),
    surrogate=parts.SequenceClipped(clip_low, clip_high),
    aggregation=aggregation.sequence_mean,
  )


@with_schedule()
def gmpo(
  clip: float = 0.4,
) -> Algorithm:
  """GMPO: geometric-mean policy optimization.

  GRPO's advantage, and `-A * exp(mean_t l_t)` with token log-ratios `l_t` bounded on the
  side that PPO clips; mean over sequences, no KL penalty. Source: arXiv 2507.20673.

  Not as in the source: one optimizer step per rollout by default, where the gradient is
  that of GRPO without a penalty; the paper takes several.

  Args:
    clip: bound of a token's log-ratio, nats.

  Returns:
    An `Algorithm`.
  """
  return Algorithm(
    advantage=parts.GroupNormalized(),
    surrogate=parts.GeometricMean(clip),
    aggregation=aggregation.sequence_mean,
  )


@with_schedule()
def cispo(
  clip_low: float = 1.0,
  clip_high: float = 0.28,
) -> Algorithm:
  """CISPO: clipped importance-sampling policy optimization.

  GRPO's advantage, and `-stop_gradient(clip(ratio)) * A * logp`: the weight is clipped, the
  gradient never; mean over all tokens, no KL penalty. Source: arXiv 2506.13585.

  Not as in the source: the paper states no bound to copy; 0.28 is DAPO's. One optimizer
  step per rollout by default, where the gradient is that of DAPO; the paper takes 16.

  Args:
    clip_low: largest distance of a token's weight below 1; 1 for no lower bound.
    clip_high: largest distance of a token's weight above 1.

  Returns:
    An `Algorithm`.
  """
  return Algorithm(
    advantage=parts.GroupNormalized(),
    surrogate=parts.ClippedWeight(clip_low, clip_high),
    aggregation=aggregation.token_mean,
  )


@with_schedule()
def sapo(
  tau_pos: float = 1.0,
  tau_neg: float = 1.05,
) -> Algorithm:
  """SAPO: soft adaptive policy optimization.

  GRPO's advantage, and `-A * (4 / tau) * sigmoid(tau * (ratio - 1))`; mean over tokens and
  then over completions, no KL penalty. Source: arXiv 2511.20347.

  Not as in the source: one optimizer step per rollout by default, where the gradient is
  that of GRPO without a penalty; the paper takes several.

  Args:
    tau_pos: sharpness of the gate for positive advantages.
    tau_neg: sharpness of the gate for all other advantages.

  Returns:
    An `Algorithm`.
  """
  return Algorithm(
    advantage=parts.GroupNormalized(),
    surrogate=parts.SigmoidGate(tau_pos, tau_neg),
    aggregation=aggregation.sequence_mean,
  )


@with_schedule()
def dppo(
  delta: float = 0.15,
  max_length: int | None = None,
) -> Algorithm:
  """DPPO: a bound on the change of a token's probability instead of the clip.

  `A = R - mean R`, and `-A * ratio` without gradient where the probability differs by
  more than `delta` in its direction, both relative to the sampler's policy; sum over tokens
  divided by a constant, then mean over completions, no KL penalty. Source: arXiv
  2602.04879 and its authors' recipe.

  Not as in the source: one optimizer step per rollout by default, where the gradient is
  that of Dr. GRPO, but for what the sampler computes differently.

  Args:
    delta: largest change of a token's probability.
    max_length: the constant, in tokens; None for the sampler's limit.

  Returns:
    An `Algorithm`.
  """
  return Algorithm(
    advantage=parts.GroupCentered(),
    surrogate=parts.ProbabilityClipped(delta, "sampler"),
    aggregation=parts.FixedLength(max_length),
  )
