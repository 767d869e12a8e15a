"""Group advantages: rewards `[..., G]` to advantages `[..., G]`."""

import chex
import jax.numpy as jnp

from pgax.ops.advantages.centering import center, check_normalization, check_rewards
from pgax.ops.masking import masked_mean, masked_sum, select
from pgax.ops.precision import as_float
from pgax.types import Array

__all__ = ["dr_grpo", "grpo", "maxrl", "opo", "remax", "rloo"]


def rloo(rewards: Array, valid: Array | None = None) -> Array:
  """RLOO: REINFORCE with a leave-one-out baseline.

  `A_k = R_k - mean_{j != k} R_j = G / (G - 1) * (R_k - mean R)`. It is unbiased, since the
  baseline of a completion does not include its own reward. Source: arXiv 2402.14740.

  Args:
    rewards: `[..., G]` rewards.
    valid: `[..., G]` bool, completions that could be scored; None for all. A group
      with a single valid completion has no baseline and gets advantage 0.

  Returns:
    `[..., G]` float32 advantages.

  Raises:
    ValueError: if `G` is 1.

  Example:
    >>> print(advantages.rloo(jnp.array([1.0, 0.0, 0.0, 0.0])))
    [ 1.     -0.3333 -0.3333 -0.3333]
  """
  rewards, valid = check_rewards(rewards, valid)
  if rewards.shape[-1] < 2:
    raise ValueError(
      f"group size is {rewards.shape[-1]}; RLOO's leave-one-out baseline needs at least 2"
    )
  count = jnp.sum(valid, axis=-1, keepdims=True, dtype=jnp.float32)
  return center(rewards, valid) * count / jnp.maximum(count - 1.0, 1.0)


def grpo(
  rewards: Array, valid: Array | None = None, ddof: int = 0, eps: float = 1e-6
) -> Array:
  """GRPO: rewards normalized within their group.

  `A = (R - mean R) / (std R + eps)`. An all-equal group, a group of one included, gets
  exactly 0. Source: arXiv 2402.03300.

  Args:
    rewards: `[..., G]` rewards.
    valid: `[..., G]` bool, completions that could be scored; None for all.
    ddof: 0 divides the variance by the group size, 1 by the group size minus 1, as TRL and
      verl do.
    eps: constant added to the standard deviation, in units of reward.

  Returns:
    `[..., G]` float32 advantages.

  Raises:
    ValueError: if `ddof` is not 0 or 1, or `eps` is negative.

  Example:
    >>> print(advantages.grpo(jnp.array([1.0, 0.0, 0.0, 0.0])))
    [ 1.732  -0.5773 -0.5773 -0.5773]
    >>> print(advantages.grpo(jnp.array([1.0, 1.0, 1.0, 1.0])))
    [0. 0. 0. 0.]
  """
  check_normalization(ddof, eps)
  rewards, valid = check_rewards(rewards, valid)
  centered = center(rewards, valid)
  count = jnp.sum(valid, axis=-1, keepdims=True, dtype=jnp.float32)
  variance = masked_sum(centered**2, valid, -1)[..., None] / jnp.maximum(count - ddof, 1.0)
  # An all-equal group has no signal for any eps. It must not reach the square root, whose
  # slope at 0 is infinite, nor form 0/0 where eps is 0.
  signal = variance > 0
  std = jnp.sqrt(jnp.where(signal, variance, 1.0))
  return jnp.where(signal, centered / (std + eps), 0.0)


def dr_grpo(rewards: Array, valid: Array | None = None) -> Array:
  """Dr. GRPO: rewards minus the mean of their group, without division by its deviation.

  `A = R - mean R`. Source: arXiv 2503.20783.

  Args:
    rewards: `[..., G]` rewards.
    valid: `[..., G]` bool, completions that could be scored; None for all.

  Returns:
    `[..., G]` float32 advantages.

  Example:
    >>> print(advantages.dr_grpo(jnp.array([1.0, 0.0, 0.0, 0.0])))
    [ 0.75 -0.25 -0.25 -0.25]
  """
  return center(*check_rewards(rewards, valid))


def remax(rewards: Array, greedy_rewards: Array) -> Array:
  """ReMax: REINFORCE with the reward of the greedy completion as its baseline.

  `A = R - R(greedy completion of the same prompt)`. Source: arXiv 2310.10505.

  Args:
    rewards: `[..., G]` rewards of sampled completions.
    greedy_rewards: `[...]` reward of each prompt's greedy completion.

  Returns:
    `[..., G]` float32 advantages.

  Example:
    >>> print(advantages.remax(jnp.array([1.0, 0.0, 0.5]), jnp.array(0.5)))
    [ 0.5 -0.5  0. ]
  """
  rewards, _ = check_rewards(rewards, None)
  greedy_rewards = as_float(greedy_rewards)
  chex.assert_shape(greedy_rewards, rewards.shape[:-1])
  return rewards - greedy_rewards[..., None]


def opo(rewards: Array, lengths: Array, valid: Array | None = None) -> Array:
  """OPO: rewards minus their length-weighted mean, the baseline of least variance.

  `A = R - sum_i l_i R_i / sum_i l_i`. Source: arXiv 2505.23585.

  Args:
    rewards: `[..., G]` rewards.
    lengths: `[..., G]` lengths of the completions, in tokens.
    valid: `[..., G]` bool, completions that could be scored; None for all.

  Returns:
    `[..., G]` float32 advantages; 0 for a group without a token.

  Example:
    >>> print(advantages.opo(jnp.array([1.0, 0.0]), lengths=jnp.array([3, 1])))
    [ 0.25 -0.75]
  """
  rewards, valid = check_rewards(rewards, valid)
  lengths = select(as_float(lengths), valid)
  # Relative to the mean, so that an all-equal group is exactly 0 for any lengths.
  centered = center(rewards, valid)
  total = jnp.sum(lengths, axis=-1, keepdims=True)
  shift = jnp.sum(lengths * centered, axis=-1, keepdims=True) / jnp.maximum(total, 1.0)
  return select(jnp.where(total > 0, centered - shift, 0.0), valid)


def maxrl(rewards: Array, valid: Array | None = None) -> Array:
  """MaxRL: rewards minus the mean of their group, divided by that mean.

  `A = (R - mean R) / mean R`, and 0 where the mean is not positive. For binary rewards
  this follows the gradient of maximum likelihood rather than of the expected reward.
  Source: arXiv 2602.02710.

  Args:
    rewards: `[..., G]` rewards, binary, or at least not negative.
    valid: `[..., G]` bool, completions that could be scored; None for all.

  Returns:
    `[..., G]` float32 advantages.

  Example:
    >>> print(advantages.maxrl(jnp.array([1.0, 0.0, 0.0, 0.0])))
    [ 3. -1. -1. -1.]
  """
  rewards, valid = check_rewards(rewards, valid)
  mean = masked_mean(rewards, valid, -1)[..., None]
  # A negative mean, which penalties can cause, would flip the sign.
  signal = mean > 0
  return jnp.where(signal, center(rewards, valid) / jnp.where(signal, mean, 1.0), 0.0)
