"""Rewards of completions, shaped before any advantage is formed from them.

Each step is its own function, and none is applied unless it is called. Whitening is
`advantages.whiten`. A reward of nan, one that could not be scored, stays nan.
"""

import chex
import jax.numpy as jnp

from pgax.types import Array


def missing_eos(
  rewards: Array, finished: Array, penalty: float, replace: bool = False
) -> Array:
  """Penalty for a completion that was cut at the length limit.

  `R - penalty` where it was cut, or `-penalty` with `replace`: a reward model that never
  saw a truncated completion has no say about one. Sources: arXiv 1909.08593, which
  gives a fixed score; TRL, which subtracts.

  Args:
    rewards: `[...]` rewards of completions.
    finished: `[...]` bool or 0/1, true where a completion ended by EOS.
    penalty: in units of reward, at least 0.
    replace: whether the penalty stands in the place of the reward.

  Returns:
    `[...]` float32.

  Raises:
    ValueError: if `penalty` is negative.
  """
  if not penalty >= 0:
    raise ValueError(f"penalty is {penalty}; it must be at least 0")
  rewards, finished = jnp.asarray(rewards, jnp.float32), jnp.asarray(finished, bool)
  chex.assert_equal_shape([rewards, finished])
  return jnp.where(finished, rewards, -penalty if replace else rewards - penalty)


def overlong(lengths: Array, max_length: int, buffer: int) -> Array:
  """Penalty that grows over the last tokens before the length limit, to add to a reward.

  `0` if `|o| <= L - C`, `((L - C) - |o|) / C` in between, and `-1` beyond `L`. Source:
  DAPO, arXiv 2503.14476, which takes 20480 and 4096.

  Args:
    lengths: `[...]` lengths of completions `|o|`, in tokens.
    max_length: the limit `L`, in tokens, positive.
    buffer: the stretch `C` before the limit over which it grows, in tokens, from 1 to
      `max_length`.

  Returns:
    `[...]` float32, between -1 and 0.

  Raises:
    ValueError: if `buffer` is not between 1 and `max_length`.
  """
  if not 1 <= buffer <= max_length:
    raise ValueError(
      f"buffer is {buffer} and max_length is {max_length}; allowed are buffers from 1 to "
      "max_length tokens"
    )
  lengths = jnp.asarray(lengths, jnp.float32)
  return jnp.clip((max_length - buffer - lengths) / buffer, -1.0, 0.0)


def normalise(rewards: Array, low: float, high: float) -> Array:
  """Rewards of a known range, moved to [0, 1].

  `(R - low) / (high - low)`; a reward out of the range is not clipped.

  Args:
    rewards: `[...]` rewards.
    low: the reward that becomes 0.
    high: the reward that becomes 1, above `low`.

  Returns:
    `[...]` float32.

  Raises:
    ValueError: if `low` is not below `high`.
  """
  if not low < high:
    raise ValueError(f"low is {low} and high is {high}; low must be below high")
  return (jnp.asarray(rewards, jnp.float32) - low) / (high - low)


def clip(rewards: Array, low: float, high: float) -> Array:
  """Rewards kept within bounds.

  `min(max(R, low), high)`.

  Args:
    rewards: `[...]` rewards.
    low: the smallest reward.
    high: the largest reward, at least `low`.

  Returns:
    `[...]` float32.

  Raises:
    ValueError: if the bounds are not in order.
  """
  if not low <= high:
    raise ValueError(f"low is {low} and high is {high}; low must not be above high")
  return jnp.clip(jnp.asarray(rewards, jnp.float32), low, high)
