"""Filters: which completions take part in the update, and which groups carry a signal."""

import jax.numpy as jnp

from pgax.types import Array, Rollout


def finished(rewards: Array, valid: Array, rollout: Rollout) -> Array:
  """DAPO's overlong filter: drops completions that were cut at the length limit.

  For `Algorithm.completion_filter`. Source: arXiv 2503.14476, section 3.4.

  Args:
    rewards: `[N, G]` rewards, ignored.
    valid: `[N, G]` bool, ignored.
    rollout: the completions.

  Returns:
    `[N, G]` bool.
  """
  del rewards, valid
  return rollout.finished


def informative(rewards: Array, valid: Array) -> Array:
  """DAPO's dynamic sampling: groups whose rewards are not all equal.

  In all other groups every group advantage is 0. Source: arXiv 2503.14476, section 3.2.

  Args:
    rewards: `[..., G]` rewards; ignored where not valid.
    valid: `[..., G]` bool, the completions that could be scored.

  Returns:
    `[...]` bool; false for a group without a valid completion.
  """
  valid = jnp.asarray(valid, bool)
  highest = jnp.max(rewards, axis=-1, where=valid, initial=-jnp.inf)
  lowest = jnp.min(rewards, axis=-1, where=valid, initial=jnp.inf)
  return highest > lowest
