"""Helpers of group and batch advantages: checked rewards, and rewards minus their mean."""

import chex
import jax.numpy as jnp

from pgax.ops.masking import masked_mean, select
from pgax.ops.precision import as_float, is_concrete
from pgax.types import Array


def check_rewards(rewards: Array, valid: Array | None) -> tuple[Array, Array]:
  """Converts rewards to floats with invalid entries at 0, and `valid` to bool.

  Args:
    rewards: `[..., G]` rewards.
    valid: `[..., G]` bool or 0/1; None for all.

  Returns:
    Rewards and `valid`, both `[..., G]`.

  Raises:
    ValueError: if `rewards` is a scalar.
  """
  rewards = as_float(rewards)
  if rewards.ndim < 1:
    raise ValueError(f"rewards has shape {rewards.shape}; it needs a group axis [..., G]")
  valid = jnp.ones(rewards.shape, bool) if valid is None else jnp.asarray(valid, bool)
  chex.assert_equal_shape([rewards, valid])
  return select(rewards, valid), valid


def check_normalization(ddof: int, eps: float) -> None:
  """Rejects settings of a division by the standard deviation.

  Args:
    ddof: delta degrees of freedom, as in `numpy.var`.
    eps: constant added to the standard deviation.

  Raises:
    ValueError: if `ddof` is not 0 or 1, or `eps` is negative.
  """
  if is_concrete(eps) and not eps >= 0:
    raise ValueError(f"eps is {eps}; it must be at least 0")
  if ddof not in (0, 1):
    raise ValueError(f"ddof is {ddof}; allowed are 0 (population) and 1 (sample)")


def center(rewards: Array, valid: Array) -> Array:
  """Subtracts the mean of the group.

  The largest reward is subtracted first. An all-equal group is then all zeros before its
  mean is computed, which leaves no rounding error for a tiny deviation to magnify.

  Args:
    rewards: `[..., G]` float32.
    valid: `[..., G]` bool.

  Returns:
    `[..., G]` float32, 0 where not valid.
  """
  largest = jnp.max(rewards, axis=-1, keepdims=True, where=valid, initial=-jnp.inf)
  shifted = select(rewards - select(largest, jnp.isfinite(largest)), valid)
  return select(shifted - masked_mean(shifted, valid, -1)[..., None], valid)
