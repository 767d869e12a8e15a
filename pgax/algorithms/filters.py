"""Filters: which completions, and which groups, an update is worth computing for."""

import jax.numpy as jnp

from pgax.types import Array, Rollout


def finished(rewards: Array, valid: Array, rollout: Rollout) -> Array:
  """Completions that ended by themselves; those cut at the limit are left out.

  For `Algorithm.keep`. Source: the overlong filter of DAPO, arXiv 2503.14476, section 3.4.

  Args:
    rewards: `[N, G]`, of no concern here.
    valid: `[N, G]` bool, likewise.
    rollout: the completions.

  Returns:
    `[N, G]` bool.
  """
  del rewards, valid
  return rollout.finished


def informative(rewards: Array, valid: Array) -> Array:
  """Groups with two different rewards: only they have a group advantage that is not 0.

  Source: dynamic sampling of DAPO, arXiv 2503.14476, section 3.2.

  Args:
    rewards: `[..., G]`; may hold anything where not valid.
    valid: `[..., G]` bool, the completions that could be scored.

  Returns:
    `[...]` bool; false for a group with nothing valid.
  """
  valid = jnp.asarray(valid, bool)
  highest = jnp.max(rewards, axis=-1, where=valid, initial=-jnp.inf)
  lowest = jnp.min(rewards, axis=-1, where=valid, initial=jnp.inf)
  return highest > lowest
