"""The methods of TPO's token reversal: losses of rollouts."""

import dataclasses
import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp

from experiments.reproductions.tpo.reversal_rollout import Rollout
from pgax.ops import advantages, kl, surrogates
from pgax.types import Array

CANDIDATES, EPOCHS = 8, 4
_KL_COEF = 0.04  # of GRPO


def _batch_centered(rewards: Array) -> Array:
  """Rewards `[B, T, 1]` minus the mean of the batch at their position."""
  return advantages.dr_grpo(rewards.T).T


def _tpo(logp: Array, rollout: Rollout) -> Array:
  """TPO of each state, whose completions are of one token."""
  scores = advantages.grpo(rollout.rewards, eps=0.0)
  one_token = jnp.ones((*logp.shape, 1), bool)
  terms = surrogates.tpo(logp[..., None], rollout.logp[..., None], scores, one_token)
  return jnp.mean(terms.loss)


def _grpo(logp: Array, rollout: Rollout, kl_coef: float = _KL_COEF) -> Array:
  """GRPO with a penalty for the divergence from the old policy, summed over candidates."""
  scores = advantages.grpo(rollout.rewards, eps=1e-8)
  loss = surrogates.clipped(logp, rollout.logp, scores).loss
  if kl_coef:
    loss = loss + kl_coef * kl.k3(logp, rollout.logp)
  return jnp.mean(jnp.sum(loss, axis=-1))


def _ppo(logp: Array, rollout: Rollout) -> Array:
  """PPO, summed over the tokens of a trajectory."""
  centered = _batch_centered(rollout.rewards)
  loss = surrogates.clipped(logp, rollout.logp, centered).loss
  return jnp.mean(jnp.sum(loss, axis=(1, 2)))


def _dg(logp: Array, rollout: Rollout) -> Array:
  """DG: advantages times the sigmoid of advantage times surprisal, at temperature 1."""
  centered = _batch_centered(rollout.rewards)
  gated = jax.nn.sigmoid(-centered * logp) * centered
  return jnp.mean(jnp.sum(surrogates.policy_gradient(logp, gated).loss, axis=(1, 2)))


@dataclasses.dataclass(frozen=True)
class Method:
  """A method of the tables.

  Attributes:
    loss: the loss, given log-probabilities `[B, T, K]` of the candidates of a rollout.
    candidates: number of candidates of a group; 1 is a method without groups.
    epochs: number of updates by a rollout.
  """

  loss: Callable[[Array, Rollout], Array]
  candidates: int
  epochs: int


METHODS = {
  "TPO": Method(_tpo, CANDIDATES, EPOCHS),
  "GRPO": Method(_grpo, CANDIDATES, EPOCHS),
  "GRPO without KL": Method(functools.partial(_grpo, kl_coef=0.0), CANDIDATES, EPOCHS),
  "DG": Method(_dg, 1, 1),  # it has no limit on the update, which more epochs need
  "PPO": Method(_ppo, 1, EPOCHS),
}
