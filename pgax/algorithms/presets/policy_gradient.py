"""Presets of the policy gradient under different baselines."""

from typing import Literal

from pgax.algorithms import parts
from pgax.algorithms.presets.penalty import kl_penalty
from pgax.algorithms.presets.schedule import with_schedule
from pgax.algorithms.spec import Algorithm, MovingAverage
from pgax.ops import aggregation, kl

__all__ = [
  "reinforce",
  "rloo",
  "remax",
  "reinforce_pp",
  "reinforce_pp_baseline",
  "opo",
  "maxrl",
]


@with_schedule()
def reinforce(
  rate: float | None = None, baseline: Literal["mean", "none"] = "mean"
) -> Algorithm:
  """REINFORCE: the policy gradient with a mean reward as its baseline.

  `loss = -sum_t (R - b) logp_t`, mean over completions. Source: Williams 1992.

  Not as in the source: the mean of the batch includes the completion's own reward, which
  with `n` completions scales the expected gradient by `(n - 1) / n`.

  Args:
    rate: weight of the newest batch in a moving average of the reward, in [0, 1]; None for
      the mean of the batch itself.
    baseline: `none` for `b = 0`, which requires a `rate` of None.

  Returns:
    An `Algorithm` without clip and KL penalty.

  Raises:
    ValueError: if `baseline` is unknown, or `none` with a rate.
  """
  if baseline not in ("mean", "none") or (rate is not None and baseline == "none"):
    raise ValueError(
      f"baseline is {baseline!r} and rate is {rate}; allowed are 'mean', and 'none' with a "
      "rate of None"
    )
  advantage = parts.BatchMean() if baseline == "mean" else parts.NoBaseline()
  return Algorithm(
    advantage=advantage if rate is None else parts.MovingAverageBaseline(),
    surrogate=parts.PolicyGradient(),
    aggregation=aggregation.sequence_sum,
    baseline=None if rate is None else MovingAverage(rate),
  )


@with_schedule()
def rloo(kl_coef: float = 0.05, clip: float | None = None) -> Algorithm:
  """RLOO: REINFORCE with a leave-one-out baseline.

  `loss = -sum_t (R_k - mean_{j != k} R_j) logp_t` with `R <- R - kl_coef * sum_t k1_t`,
  mean over completions. Source: arXiv 2402.14740.

  Args:
    kl_coef: coefficient of the KL penalty in the reward; 0 for no penalty.
    clip: largest distance of a token's ratio from 1 under PPO's clip; None for the plain
      policy gradient.

  Returns:
    An `Algorithm`; a group needs at least 2 completions.
  """
  return Algorithm(
    advantage=parts.LeaveOneOut(),
    surrogate=parts.PolicyGradient() if clip is None else parts.Clipped(clip, clip),
    aggregation=aggregation.sequence_sum,
    kl=kl_penalty(kl.k1, kl_coef, "reward"),
  )


@with_schedule()
def remax(kl_coef: float = 0.05) -> Algorithm:
  """ReMax: REINFORCE with the reward of the greedy completion as its baseline.

  `loss = -sum_t (R - R(greedy) - kl_coef * sum_{s >= t} k1_s) logp_t`, mean over
  completions. Each prompt is also decoded greedily. Source: arXiv 2310.10505.

  Args:
    kl_coef: coefficient of the KL penalty in the reward; 0 for no penalty.

  Returns:
    An `Algorithm`.
  """
  return Algorithm(
    advantage=parts.GreedyBaseline(),
    surrogate=parts.PolicyGradient(),
    aggregation=aggregation.sequence_sum,
    kl=kl_penalty(kl.k1, kl_coef, "reward"),
    greedy_baseline=True,
  )


@with_schedule()
def reinforce_pp(kl_coef: float = 0.01, clip: float = 0.2) -> Algorithm:
  """REINFORCE++: PPO without a critic, normalized over the global batch.

  `A = whiten(G_t)`, with `G_t` the return to go of token rewards `-kl_coef * k1_t`, plus
  the completion's reward at its last token; PPO's clip, mean over all tokens. Source: arXiv
  2501.03262.

  Not as in the source: one optimizer step per rollout by default, where the clip has no
  effect.

  Args:
    kl_coef: coefficient of the KL penalty in the token rewards; 0 for no penalty.
    clip: largest distance of a token's ratio from 1.

  Returns:
    An `Algorithm`.
  """
  return Algorithm(
    advantage=parts.ReturnToGo(),
    surrogate=parts.Clipped(clip, clip),
    aggregation=aggregation.token_mean,
    kl=kl_penalty(kl.k1, kl_coef, "reward"),
  )


@with_schedule()
def reinforce_pp_baseline(kl_coef: float = 1e-5, clip: float = 0.2) -> Algorithm:
  """REINFORCE++ with the mean of the group as its baseline.

  As `reinforce_pp`, with `R - mean R` of the group instead of the completion's reward, and
  `+ kl_coef * k2` in the loss instead of a penalty in the reward.
  Source: arXiv 2501.03262.

  Not as in the source: one optimizer step per rollout by default, where the clip has no
  effect. The penalty, `k2` in the loss with 1e-5, is that of the authors' scripts.

  Args:
    kl_coef: coefficient of the KL penalty in the loss; 0 for no penalty.
    clip: largest distance of a token's ratio from 1.

  Returns:
    An `Algorithm`.
  """
  return Algorithm(
    advantage=parts.ReturnToGo(group_baseline=True),
    surrogate=parts.Clipped(clip, clip),
    aggregation=aggregation.token_mean,
    kl=kl_penalty(kl.k2, kl_coef, "loss"),
  )


@with_schedule()
def opo() -> Algorithm:
  """OPO: on-policy optimization with the baseline of least variance.

  `A = R - sum_i l_i R_i / sum_i l_i`, the policy gradient, sum over tokens and mean over
  completions, no KL penalty. Source: arXiv 2505.23585.

  Returns:
    An `Algorithm`.
  """
  return Algorithm(
    advantage=parts.LengthWeighted(),
    surrogate=parts.PolicyGradient(),
    aggregation=aggregation.sequence_sum,
  )


@with_schedule()
def maxrl() -> Algorithm:
  """MaxRL: maximum-likelihood reinforcement learning, for binary rewards.

  `A = (R - mean R) / mean R`, the policy gradient, sum over tokens and mean over
  completions, no KL penalty. Source: arXiv 2602.02710.

  Returns:
    An `Algorithm`.
  """
  return Algorithm(
    advantage=parts.RelativeToMean(),
    surrogate=parts.PolicyGradient(),
    aggregation=aggregation.sequence_sum,
  )
