"""Presets with a critic: PPO and its kin."""

import dataclasses

from pgax.algorithms import parts
from pgax.algorithms.presets.penalty import kl_penalty
from pgax.algorithms.spec import Algorithm, PositiveExamples, ValueLearning
from pgax.ops import aggregation, kl


def ppo(
  clip: float = 0.2,
  lam: float = 0.95,
  kl_coef: float = 0.05,
  value_clip: float = 0.2,
  value_coef: float = 0.1,
  epochs: int = 4,
  minibatches: int = 1,
) -> Algorithm:
  """Proximal policy optimization, with a critic.

  `A = whiten(GAE(lam))` of token rewards `-kl_coef * k1_t` and the completion's reward at
  its end, PPO's clip, mean over all tokens; the critic learns the lambda-return. Sources:
  arXiv 1707.06347, arXiv 2203.02155.

  Args:
    clip: how far a token's ratio may go from 1.
    lam: the trace, of advantages and of the critic's targets.
    kl_coef: coefficient of the KL penalty inside the token rewards; 0 for none.
    value_clip: how far a value may move in one update.
    value_coef: factor of the critic's loss.
    epochs: passes over a rollout.
    minibatches: optimizer steps in a pass.

  Returns:
    An `Algorithm`.
  """
  return Algorithm(
    advantage=parts.GAE(lam=lam),
    surrogate=parts.Clipped(clip, clip),
    aggregation=aggregation.token_mean,
    kl=kl_penalty(kl.k1, kl_coef, "reward"),
    critic=ValueLearning(
      parts.LambdaReturn(lam=lam), parts.SquaredError(value_clip), value_coef
    ),
    epochs=epochs,
    minibatches=minibatches,
  )


def vc_ppo(
  pretraining: int = 10,
  clip: float = 0.2,
  lam: float = 0.95,
  kl_coef: float = 0.05,
  value_clip: float = 0.2,
  value_coef: float = 0.1,
  epochs: int = 4,
  minibatches: int = 1,
) -> Algorithm:
  """Value-calibrated PPO: a critic that learns first, and without a trace.

  As `ppo`, with the critic's target the plain return (a trace of 1, decoupled from that of
  the advantages), and the critic alone learning at the start. Source: arXiv 2503.01491.

  Args:
    pretraining: steps at the start in which the critic alone learns.
    clip: how far a token's ratio may go from 1.
    lam: the trace of the advantages.
    kl_coef: coefficient of the KL penalty inside the token rewards; 0 for none.
    value_clip: how far a value may move in one update.
    value_coef: factor of the critic's loss.
    epochs: passes over a rollout.
    minibatches: optimizer steps in a pass.

  Returns:
    An `Algorithm`.
  """
  return dataclasses.replace(
    ppo(clip, lam, kl_coef, epochs=epochs, minibatches=minibatches),
    critic=_monte_carlo(value_clip, value_coef, pretraining),
  )


def vapo(
  pretraining: int = 10,
  clip_low: float = 0.2,
  clip_high: float = 0.28,
  alpha: float = 0.05,
  imitation_coef: float = 0.1,
  value_clip: float = 0.2,
  value_coef: float = 0.1,
  epochs: int = 4,
  minibatches: int = 1,
) -> Algorithm:
  """Value-based augmented PPO.

  `A = whiten(GAE(1 - 1 / (alpha * |o|)))`, PPO's clip with a higher upper bound, mean over
  all tokens, plus `imitation_coef` times the negative log-likelihood of right completions;
  the critic learns the plain return, and learns first. Source: arXiv 2504.05118.

  Args:
    pretraining: steps at the start in which the critic alone learns.
    clip_low: how far a token's ratio may fall below 1.
    clip_high: how far a token's ratio may rise above 1.
    alpha: how fast the trace of the advantages grows with the length.
    imitation_coef: factor of the likelihood of right completions; 0 for none.
    value_clip: how far a value may move in one update.
    value_coef: factor of the critic's loss.
    epochs: passes over a rollout.
    minibatches: optimizer steps in a pass.

  Returns:
    An `Algorithm`.
  """
  return Algorithm(
    advantage=parts.LengthAdaptiveGAE(alpha=alpha),
    surrogate=parts.Clipped(clip_low, clip_high),
    aggregation=aggregation.token_mean,
    critic=_monte_carlo(value_clip, value_coef, pretraining),
    imitation=PositiveExamples(imitation_coef) if imitation_coef else None,
    epochs=epochs,
    minibatches=minibatches,
  )


def _monte_carlo(clip: float, coef: float, pretraining: int) -> ValueLearning:
  """A critic of the plain return."""
  target = parts.LambdaReturn(lam=1.0)
  return ValueLearning(target, parts.SquaredError(clip), coef, pretraining)
