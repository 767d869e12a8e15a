"""Token advantages and token rewards, from rewards of steps and completions."""

import chex
import jax
import jax.numpy as jnp

from pgax.ops.advantages.group import grpo
from pgax.ops.masking import select
from pgax.ops.precision import as_float
from pgax.types import Array

__all__ = ["at_last_token", "grpo_process"]


def grpo_process(
  step_rewards: Array,
  step_mask: Array,
  step_ends: Array,
  mask: Array,
  ddof: int = 0,
  eps: float = 1e-6,
) -> Array:
  """GRPO with process supervision: every step of a completion has its own reward.

  Step rewards are normalized over all steps of all completions of the group; `A_t` is the
  sum of those of the steps that end at or after token `t`. Source: arXiv 2402.03300,
  section 4.1.3.

  Args:
    step_rewards: `[..., G, S]` reward of each step.
    step_mask: `[..., G, S]` bool, true on steps that exist.
    step_ends: `[..., G, S]` int, index of the token that ends a step. An index beyond `T`
      counts for all tokens, a negative one for none.
    mask: `[..., G, T]` bool or 0/1, the actions.
    ddof: 0 or 1; see `grpo`.
    eps: constant added to the standard deviation, in units of reward.

  Returns:
    `[..., G, T]` float32 advantages, 0 where masked.

  Raises:
    ValueError: if `ddof` is not 0 or 1, or `eps` is negative.

  Example:
    >>> step_rewards = jnp.array([[1.0], [0.0]])  # two completions with a step each
    >>> step_ends, mask = jnp.array([[1], [0]]), jnp.ones((2, 3))
    >>> print(advantages.grpo_process(step_rewards, step_ends >= 0, step_ends, mask))
    [[ 1.  1.  0.]
     [-1.  0.  0.]]
  """
  chex.assert_equal_shape([step_rewards, step_mask, step_ends])
  chex.assert_equal_shape_prefix([step_rewards, mask], jnp.ndim(mask) - 1)
  shape, joint = step_rewards.shape, (*step_rewards.shape[:-2], -1)
  step_mask = jnp.asarray(step_mask, bool)
  normalized = grpo(
    jnp.reshape(step_rewards, joint), jnp.reshape(step_mask, joint), ddof, eps
  ).reshape(shape)
  # Rewards are scattered to the tokens that end the steps, and summed from the last token
  # back, so that no array is larger than the steps or the tokens.
  limit = mask.shape[-1]
  ends = jnp.asarray(step_ends).reshape(-1, shape[-1])
  # A negative index becomes `limit`, which the scatter drops.
  slots = jnp.where(ends < 0, limit, jnp.minimum(ends, limit - 1))
  rows = jnp.arange(slots.shape[0])[:, None]
  at_ends = jnp.zeros((slots.shape[0], limit), normalized.dtype)
  at_ends = at_ends.at[rows, slots].add(normalized.reshape(slots.shape), mode="drop")
  return select(jax.lax.cumsum(at_ends, axis=1, reverse=True).reshape(mask.shape), mask)


def at_last_token(rewards: Array, mask: Array) -> Array:
  """Token rewards: the reward of each completion at its last action.

  Args:
    rewards: `[...]` one reward for each sequence.
    mask: `[..., T]` bool or 0/1, the actions.

  Returns:
    `[..., T]` float32: the reward at the last action, 0 elsewhere.

  Example:
    >>> mask = jnp.array([[1, 1, 0], [1, 0, 1]])
    >>> print(advantages.at_last_token(jnp.array([5.0, 7.0]), mask))
    [[0. 5. 0.]
     [0. 0. 7.]]
  """
  mask = jnp.asarray(mask, bool)
  chex.assert_shape(rewards, mask.shape[:-1])
  slot = jnp.arange(mask.shape[-1])
  last = jnp.max(jnp.where(mask, slot, -1), axis=-1, keepdims=True)
  return jnp.where(slot == last, as_float(rewards)[..., None], 0.0)
