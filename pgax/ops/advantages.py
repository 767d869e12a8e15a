"""Group and batch advantages: rewards `[..., G]` to advantages `[..., G]`.

The group is the last axis. `valid` marks the completions that could be scored; one that
could not takes no part in the statistics of its group and gets advantage 0, and its
reward may then hold anything, nan included. Arithmetic is in float32.
"""

import chex
import jax.numpy as jnp

from pgax.ops.masking import masked_mean, masked_sum, select
from pgax.types import Array


def _checked(rewards: Array, valid: Array | None) -> tuple[Array, Array]:
  """Rewards as float32 with invalid entries at 0, and `valid` as bool."""
  rewards = jnp.asarray(rewards, jnp.float32)
  if rewards.ndim < 1:
    raise ValueError(f"rewards has shape {rewards.shape}; it needs a group axis [..., G]")
  valid = jnp.ones(rewards.shape, bool) if valid is None else jnp.asarray(valid, bool)
  chex.assert_equal_shape([rewards, valid])
  return select(rewards, valid), valid


def _centred(rewards: Array, valid: Array) -> Array:
  """Rewards less the mean of their group; 0 where invalid.

  The largest reward is taken off first. An all-equal group is then all zeros before its
  mean is formed, and no rounding of that mean is left for a tiny deviation to magnify.
  """
  largest = jnp.max(rewards, axis=-1, keepdims=True, where=valid, initial=-jnp.inf)
  shifted = select(rewards - select(largest, jnp.isfinite(largest)), valid)
  return select(shifted - masked_mean(shifted, valid, -1)[..., None], valid)


def batch_mean(rewards: Array, valid: Array | None = None) -> Array:
  """REINFORCE with the mean of the whole batch as its baseline.

  `A = R - mean(R)`, the mean over every axis. Source: Williams 1992, REINFORCE.

  Args:
    rewards: `[..., G]` rewards.
    valid: `[..., G]` bool, the completions that could be scored; all by default.

  Returns:
    `[..., G]` float32 advantages.
  """
  rewards, valid = _checked(rewards, valid)
  return _centred(rewards.ravel(), valid.ravel()).reshape(rewards.shape)


def rloo(rewards: Array, valid: Array | None = None) -> Array:
  """REINFORCE with a leave-one-out baseline.

  `A_k = R_k - mean_{j != k} R_j = G / (G - 1) * (R_k - mean R)`; unbiased, because the
  baseline of a completion does not contain its own reward. Source: RLOO, arXiv
  2402.14740.

  Args:
    rewards: `[..., G]` rewards.
    valid: `[..., G]` bool, the completions that could be scored; all by default. A group
      with a single valid completion has no baseline and gets advantage 0.

  Returns:
    `[..., G]` float32 advantages.

  Raises:
    ValueError: if `G` is 1.
  """
  rewards, valid = _checked(rewards, valid)
  if rewards.shape[-1] < 2:
    raise ValueError(
      f"group size is {rewards.shape[-1]}; RLOO's leave-one-out baseline needs at least 2"
    )
  count = jnp.sum(valid, axis=-1, keepdims=True, dtype=jnp.float32)
  return _centred(rewards, valid) * count / jnp.maximum(count - 1.0, 1.0)


def grpo(
  rewards: Array, valid: Array | None = None, ddof: int = 0, eps: float = 1e-6
) -> Array:
  """Rewards standardised within their group.

  `A = (R - mean R) / (std R + eps)`. An all-equal group, a group of one included, gets
  exactly 0. Source: GRPO, arXiv 2402.03300.

  Args:
    rewards: `[..., G]` rewards.
    valid: `[..., G]` bool, the completions that could be scored; all by default.
    ddof: 0 divides the variance by the group size; 1 by one less, as TRL and verl do.
    eps: added to the standard deviation, in units of reward.

  Returns:
    `[..., G]` float32 advantages.

  Raises:
    ValueError: if `ddof` is not 0 or 1, or `eps` is negative.
  """
  if not eps >= 0:
    raise ValueError(f"eps is {eps}; it must be at least 0")
  if ddof not in (0, 1):
    raise ValueError(f"ddof is {ddof}; allowed are 0 (population) and 1 (sample)")
  rewards, valid = _checked(rewards, valid)
  centred = _centred(rewards, valid)
  count = jnp.sum(valid, axis=-1, keepdims=True, dtype=jnp.float32)
  variance = masked_sum(centred**2, valid, -1)[..., None] / jnp.maximum(count - ddof, 1.0)
  # An all-equal group has no signal whatever eps is. It is kept away from the root, whose
  # slope at 0 is infinite, and from 0/0 when eps is 0.
  signal = variance > 0
  std = jnp.sqrt(jnp.where(signal, variance, 1.0))
  return jnp.where(signal, centred / (std + eps), 0.0)


def dr_grpo(rewards: Array, valid: Array | None = None) -> Array:
  """Rewards less the mean of their group, not divided by its deviation.

  `A = R - mean R`. Source: Dr. GRPO, arXiv 2503.20783.

  Args:
    rewards: `[..., G]` rewards.
    valid: `[..., G]` bool, the completions that could be scored; all by default.

  Returns:
    `[..., G]` float32 advantages.
  """
  return _centred(*_checked(rewards, valid))
