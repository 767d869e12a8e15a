"""Presets that look at whole completions, at pairs, or at a proximal term."""

from typing import Literal

from pgax.algorithms import parts
from pgax.algorithms.presets.penalty import kl_penalty
from pgax.algorithms.spec import Algorithm, KLPenalty
from pgax.ops import aggregation, kl


def mdpo(
  step_size: float = 1.0,
  final_step_size: float = 0.1,
  anneal_steps: int = 100,
  epochs: int = 4,
  minibatches: int = 1,
) -> Algorithm:
  """Mirror-descent policy optimization: several steps towards a proximal optimum.

  `-A * ratio + (1 / t_k) * KL(policy || old policy)`, the step size `t_k` annealed from
  update to update, `A = R - mean R` of the group; mean over tokens and then over
  completions. The same per token as `surrogates.mdpo`. Source: arXiv 2005.09814.

  Args:
    step_size: `t_k` at the start.
    final_step_size: `t_k` at last.
    anneal_steps: updates between the two.
    epochs: passes over a rollout; with one optimizer step the divergence is never felt.
    minibatches: optimizer steps in a pass.

  Returns:
    An `Algorithm`.
  """
  annealed = kl.AnnealedController(step_size, final_step_size, anneal_steps)
  return Algorithm(
    advantage=parts.GroupCentred(),
    surrogate=parts.Unclipped(),
    aggregation=aggregation.sequence_mean,
    kl=KLPenalty(kl.k3, annealed, "loss", anchor="old", corrected=True),
    epochs=epochs,
    minibatches=minibatches,
  )


def mdpo_kimi(tau: float = 0.1, epochs: int = 4, minibatches: int = 1) -> Algorithm:
  """Mirror-descent policy optimization as a squared distance, as Kimi k1.5 has it.

  `(A - tau * log(policy / old policy))**2 / (2 tau)` of whole completions, `A = R - mean R`
  of the group; mean over completions. Source: arXiv 2501.12599.

  Args:
    tau: weight of the log-ratio, positive.
    epochs: passes over a rollout; with one optimizer step the ratio is never felt.
    minibatches: optimizer steps in a pass.

  Returns:
    An `Algorithm`.
  """
  return Algorithm(
    advantage=parts.GroupCentred(),
    surrogate=parts.SquaredMirror(tau),
    aggregation=aggregation.sequence_mean,
    epochs=epochs,
    minibatches=minibatches,
  )


def a_lol(
  importance: Literal["sequence", "token", "none"] = "sequence",
  clip: float = 0.9,
  kl_coef: float = 0.0,
  epochs: int = 1,
  minibatches: int = 1,
) -> Algorithm:
  """Advantage-leftover-lunch: weighted imitation of what is better than average.

  `-max(A, 0) * sg(clip(policy / reference, 1 - clip, 1 + clip)) * logp`, sum over tokens
  and mean over completions. The paper takes `A` over the reference policy's value of the
  prompt; here the mean of the group stands for that. Source: arXiv 2305.14718.

  Args:
    importance: whose ratio: `sequence` the whole completion's, `token` each token's own,
      `none` for no ratio, the paper's reference-free variant.
    clip: how far that ratio may go from 1; plays no part with `none`.
    kl_coef: coefficient of a KL penalty in the loss; with `none` the paper's KL variant.
    epochs: passes over a rollout.
    minibatches: optimizer steps in a pass.

  Returns:
    An `Algorithm`.
  """
  return Algorithm(
    advantage=parts.GroupCentred(),
    surrogate=parts.ReferenceWeighted(clip, importance),
    aggregation=aggregation.sequence_sum,
    kl=kl_penalty(kl.k2, kl_coef, "loss"),
    epochs=epochs,
    minibatches=minibatches,
  )


def p3o(
  form: Literal["separate", "joint"] = "separate",
  clip: float = 0.2,
  kl_coef: float = 0.05,
  epochs: int = 1,
  minibatches: int = 1,
) -> Algorithm:
  """Pairwise proximal policy optimization.

  `-(R_1 - R_2) / 2 * (log-ratio of y_1 - log-ratio of y_2)` over the pairs of a group, with
  `R <- R - kl_coef * sum_t k1_t`, times the ratios of the two sequences, clipped. Source:
  arXiv 2310.00212.

  Args:
    form: `separate` clips the ratio of each completion (V1), `joint` the difference of
      their log-ratios (V2).
    clip: the bound of either.
    kl_coef: coefficient of the KL penalty inside the reward; 0 for none.
    epochs: passes over a rollout.
    minibatches: optimizer steps in a pass.

  Returns:
    An `Algorithm`.
  """
  return Algorithm(
    advantage=parts.GroupCentred(),
    surrogate=parts.Pairwise(clip, form),
    aggregation=aggregation.sequence_mean,
    kl=kl_penalty(kl.k1, kl_coef, "reward"),
    epochs=epochs,
    minibatches=minibatches,
  )


def copg(beta: float = 0.05, epochs: int = 1, minibatches: int = 1) -> Algorithm:
  """Contrastive policy gradient.

  `(R_1 - R_2 - beta * (log-ratio of y_1 - log-ratio of y_2))**2 / (2 beta)` over the pairs
  of a group, ratios to the reference. Right off-policy too: its minimum is the optimum of
  the reward less `beta` times the divergence, whoever sampled. Source: arXiv 2406.19185.

  Args:
    beta: coefficient of the divergence from the reference, positive.
    epochs: passes over a rollout.
    minibatches: optimizer steps in a pass.

  Returns:
    An `Algorithm`.
  """
  return Algorithm(
    advantage=parts.GroupCentred(),
    surrogate=parts.Contrastive(beta),
    aggregation=aggregation.sequence_mean,
    epochs=epochs,
    minibatches=minibatches,
  )
