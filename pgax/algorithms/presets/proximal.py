"""Presets with losses of completions or pairs of them, or with a proximal term."""

from typing import Literal

from pgax.algorithms import parts
from pgax.algorithms.presets.penalty import kl_penalty
from pgax.algorithms.presets.schedule import with_schedule
from pgax.algorithms.spec import Algorithm, KLPenalty
from pgax.ops import aggregation, kl
from pgax.types import AdvantageFn

__all__ = ["mdpo", "mdpo_kimi", "tpo", "a_lol", "p3o", "copg"]


@with_schedule(epochs=4)
def mdpo(
  step_size: float = 1.0,
  final_step_size: float = 0.1,
  anneal_steps: int = 100,
  leave_one_out: bool = False,
) -> Algorithm:
  """MDPO: mirror-descent policy optimization, several steps toward a proximal optimum.

  `-A * ratio + (1 / t_k) * KL(policy || old policy)`, with a step size `t_k` annealed
  from update to update and `A = R - mean R` of the group; mean over tokens and then over
  completions. Its per-token loss is `surrogates.mdpo`. Source: arXiv 2005.09814.

  Not as in the source: the divergence is estimated on the sampled tokens instead of
  summed over actions, the step size ends above 0, and a group replaces the critic.

  Args:
    step_size: initial `t_k`.
    final_step_size: final `t_k`.
    anneal_steps: number of updates between the two.
    leave_one_out: whether the mean of the group leaves out the completion itself, which
      makes the gradient unbiased.

  Returns:
    An `Algorithm`.
  """
  annealed = kl.AnnealedController(step_size, final_step_size, anneal_steps)
  return Algorithm(
    advantage=_baseline(leave_one_out),
    surrogate=parts.Unclipped(),
    aggregation=aggregation.sequence_mean,
    kl=KLPenalty(kl.k3, annealed, "loss", anchor="old", importance_weighted=True),
  )


def _baseline(leave_one_out: bool) -> AdvantageFn:
  """The reward minus the mean of its group, or of the others in it."""
  return parts.LeaveOneOut() if leave_one_out else parts.GroupCentered()


@with_schedule(epochs=4)
def mdpo_kimi(tau: float = 0.1, leave_one_out: bool = False) -> Algorithm:
  """Kimi k1.5: mirror-descent policy optimization as a squared distance.

  `(A - tau * log(policy / old policy))**2 / (2 tau)` of whole completions, `A = R - mean R`
  of the group; mean over completions. Source: arXiv 2501.12599.

  Not as in the source: the paper resets the optimizer when the reference changes, at
  every iteration; here it keeps its state.

  Args:
    tau: weight of the log-ratio, positive.
    leave_one_out: whether the mean of the group leaves out the completion itself.

  Returns:
    An `Algorithm`.
  """
  return Algorithm(
    advantage=_baseline(leave_one_out),
    surrogate=parts.MirrorDescent(tau),
    aggregation=aggregation.sequence_mean,
  )


@with_schedule(epochs=4)
def tpo(eta: float = 1.0) -> Algorithm:
  """TPO: target policy optimization.

  Cross-entropy of the policy over a group's completions to the target
  `q = softmax(log p_old + u / eta)`, with `u = (R - mean R) / std R`; mean over groups.
  Several steps on a rollout approach the same target. Source: arXiv 2604.06159.

  Args:
    eta: temperature of the target, positive; lower is sharper.

  Returns:
    An `Algorithm`.
  """
  return Algorithm(
    advantage=parts.GroupNormalized(eps=0.0),
    surrogate=parts.TargetMatching(eta),
    aggregation=aggregation.sequence_mean,
  )


@with_schedule()
def a_lol(
  importance: Literal["sequence", "token", "none"] = "sequence",
  clip: float = 0.9,
  kl_coef: float = 0.0,
) -> Algorithm:
  """A-LoL: advantage-leftover-lunch, weighted imitation of above-average completions.

  `-max(A, 0) * stop_gradient(clip(policy / reference, 1 - clip, 1 + clip)) * logp`, sum
  over tokens and mean over completions. Source: arXiv 2305.14718.

  Not as in the source: the baseline is the mean of the group instead of the reference
  policy's value of the prompt, completions are sampled from the policy instead of a data
  set, and there is no priority sampling by advantage.

  Args:
    importance: ratio to weight by: `sequence` for the completion's, `token` for each
      token's, `none` for a ratio of 1, the paper's reference-free variant.
    clip: largest distance of that ratio from 1; ignored with `none`.
    kl_coef: coefficient of a KL penalty in the loss; with `none`, the paper's KL variant.

  Returns:
    An `Algorithm`.
  """
  return Algorithm(
    advantage=parts.GroupCentered(),
    surrogate=parts.ReferenceWeighted(clip, importance),
    aggregation=aggregation.sequence_sum,
    kl=kl_penalty(kl.k2, kl_coef, "loss"),
  )


@with_schedule()
def p3o(
  form: Literal["separate", "joint"] = "separate",
  clip: float = 0.2,
  kl_coef: float = 0.05,
) -> Algorithm:
  """P3O: pairwise proximal policy optimization.

  `-(R_1 - R_2) / 2 * (log-ratio of y_1 - log-ratio of y_2)` over the pairs of a group, with
  `R <- R - kl_coef * sum_t k1_t`, times the ratios of the two sequences, clipped. Source:
  arXiv 2310.00212.

  Not as in the source: all pairs of a group instead of two completions per prompt, and
  one optimizer step per rollout by default.

  Args:
    form: `separate` clips the ratio of each completion (V1), `joint` the difference of
      their log-ratios (V2).
    clip: bound of the ratio or of the difference.
    kl_coef: coefficient of the KL penalty in the reward; 0 for no penalty.

  Returns:
    An `Algorithm`.
  """
  return Algorithm(
    advantage=parts.GroupCentered(),
    surrogate=parts.Pairwise(clip, form),
    aggregation=aggregation.sequence_mean,
    kl=kl_penalty(kl.k1, kl_coef, "reward"),
  )


@with_schedule()
def copg(beta: float = 0.05) -> Algorithm:
  """CoPG: contrastive policy gradient.

  `(R_1 - R_2 - beta * (log-ratio of y_1 - log-ratio of y_2))**2 / (2 beta)` over the pairs
  of a group, with ratios to the reference. It is also correct off-policy: regardless of the
  policy that sampled, its minimum maximizes the reward minus `beta` times the divergence.
  Source: arXiv 2406.19185.

  Not as in the source: all pairs of a group instead of two completions per prompt.

  Args:
    beta: coefficient of the divergence from the reference, positive.

  Returns:
    An `Algorithm`.
  """
  return Algorithm(
    advantage=parts.GroupCentered(),
    surrogate=parts.Contrastive(beta),
    aggregation=aggregation.sequence_mean,
  )
