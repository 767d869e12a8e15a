"""Presets with a critic: PPO and algorithms derived from it."""

import dataclasses

from pgax.algorithms import parts
from pgax.algorithms.presets.penalty import kl_penalty
from pgax.algorithms.presets.schedule import with_schedule
from pgax.algorithms.spec import Algorithm, CriticSpec, PositiveNLL
from pgax.ops import aggregation, kl

__all__ = ["ppo", "vc_ppo", "vapo"]


@with_schedule(epochs=4)
def ppo(
  clip: float = 0.2,
  lam: float = 0.95,
  kl_coef: float = 0.05,
  value_clip: float = 0.2,
  value_coef: float = 0.1,
  bootstrap_truncated: bool = False,
) -> Algorithm:
  """PPO: proximal policy optimization, with a critic.

  `A = whiten(GAE(lam))` of token rewards `-kl_coef * k1_t`, plus the completion's reward at
  its last token; PPO's clip on token ratios, mean over all tokens. The critic's target is
  the lambda-return. Sources: arXiv 1707.06347, arXiv 2203.02155.

  Not as in the source: InstructGPT (2203.02155) makes one pass in 8 minibatches, has
  `kl_coef` 0.02, and starts the critic from the reward model (`critic.start`). Neither
  source says how completions of different lengths are weighed; here it is the mean over
  all tokens.

  Args:
    clip: largest distance of a token's ratio from 1.
    lam: lambda of the advantages and of the critic's targets.
    kl_coef: coefficient of the KL penalty in the token rewards; 0 for no penalty.
    value_clip: largest change of a value in one update, in units of reward.
    value_coef: coefficient of the critic's loss.
    bootstrap_truncated: whether the critic's value follows the last token of completions
      cut at the length limit, as if they continued.

  Returns:
    An `Algorithm`.
  """
  return Algorithm(
    advantage=parts.GAE(lam=lam),
    surrogate=parts.Clipped(clip, clip),
    aggregation=aggregation.token_mean,
    kl=kl_penalty(kl.k1, kl_coef, "reward"),
    critic=CriticSpec(
      parts.LambdaReturn(lam=lam),
      parts.SquaredError(value_clip),
      value_coef,
      bootstrap_truncated=bootstrap_truncated,
    ),
  )


@with_schedule(epochs=4)
def vc_ppo(
  pretraining: int = 10,
  clip: float = 0.2,
  lam: float = 0.95,
  kl_coef: float = 0.05,
  value_clip: float = 0.2,
  value_coef: float = 0.1,
  bootstrap_truncated: bool = False,
) -> Algorithm:
  """VC-PPO: PPO with a pretrained critic and decoupled lambdas.

  As `ppo`, but the critic's target is the Monte Carlo return (a lambda of 1, independent of
  that of the advantages), and only the critic is trained at the start. Source: arXiv
  2503.01491.

  Not as in the source: the pretraining is as short as small jobs need, and epochs and the
  penalty are those of `ppo`.

  Args:
    pretraining: number of steps at the start in which only the critic is trained.
    clip: largest distance of a token's ratio from 1.
    lam: lambda of the advantages.
    kl_coef: coefficient of the KL penalty in the token rewards; 0 for no penalty.
    value_clip: largest change of a value in one update, in units of reward.
    value_coef: coefficient of the critic's loss.
    bootstrap_truncated: whether the critic's value follows the last token of completions
      cut at the length limit, as if they continued.

  Returns:
    An `Algorithm`.
  """
  return dataclasses.replace(
    ppo(clip, lam, kl_coef),
    critic=_monte_carlo(value_clip, value_coef, pretraining, bootstrap_truncated),
  )


@with_schedule(minibatches=16)
def vapo(
  pretraining: int = 50,
  clip_low: float = 0.2,
  clip_high: float = 0.28,
  alpha: float = 0.05,
  imitation_coef: float = 0.1,
  value_clip: float = 0.2,
  value_coef: float = 0.1,
  bootstrap_truncated: bool = False,
) -> Algorithm:
  """VAPO: value-based augmented PPO.

  `A = whiten(GAE(1 - 1 / (alpha * |o|)))`, PPO's clip with a higher upper bound, mean over
  all tokens, plus `imitation_coef` times the negative log-likelihood of correct
  completions. The critic's target is the Monte Carlo return, and only the critic is trained
  at the start. Source: arXiv 2504.05118.

  Args:
    pretraining: number of steps at the start in which only the critic is trained.
    clip_low: largest distance of a token's ratio below 1.
    clip_high: largest distance of a token's ratio above 1.
    alpha: rate at which lambda of the advantages grows with the length.
    imitation_coef: coefficient of the negative log-likelihood of correct completions; 0
      for no such term.
    value_clip: largest change of a value in one update, in units of reward.
    value_coef: coefficient of the critic's loss.
    bootstrap_truncated: whether the critic's value follows the last token of completions
      cut at the length limit, as if they continued.

  Returns:
    An `Algorithm`.
  """
  return Algorithm(
    advantage=parts.LengthAdaptiveGAE(alpha=alpha),
    surrogate=parts.Clipped(clip_low, clip_high),
    aggregation=aggregation.token_mean,
    critic=_monte_carlo(value_clip, value_coef, pretraining, bootstrap_truncated),
    nll_loss=PositiveNLL(imitation_coef) if imitation_coef else None,
  )


def _monte_carlo(
  clip: float, coef: float, pretraining: int, bootstrap_truncated: bool
) -> CriticSpec:
  """A critic whose target is the Monte Carlo return."""
  target = parts.LambdaReturn(lam=1.0)
  loss = parts.SquaredError(clip)
  return CriticSpec(target, loss, coef, pretraining, bootstrap_truncated)
