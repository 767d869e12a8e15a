"""Shaping of rewards, before advantages are computed from them.

A reward of nan, of a completion that could not be scored, stays nan. Whitening is
`advantages.whiten`.
"""

import chex
import jax.numpy as jnp

from pgax.ops.precision import as_float, is_concrete
from pgax.types import Array


def missing_eos(
  rewards: Array, finished: Array, penalty: float, replace: bool = False
) -> Array:
  """Penalizes completions that were cut at the length limit.

  `R - penalty` for truncated completions, or `-penalty` with `replace`, for reward models
  that were not trained on truncated completions. Sources: arXiv 1909.08593, which assigns a
  fixed score; TRL, which subtracts.

  Args:
    rewards: `[...]` rewards of completions.
    finished: `[...]` bool or 0/1, true on completions that ended by EOS.
    penalty: penalty in units of reward, at least 0.
    replace: whether the penalty replaces the reward, instead of being subtracted.

  Returns:
    `[...]` float32.

  Raises:
    ValueError: if `penalty` is negative.

  Example:
    >>> finished = jnp.array([True, False])
    >>> print(shaping.missing_eos(jnp.array([1.0, 1.0]), finished, penalty=0.25))
    [1.   0.75]
  """
  if is_concrete(penalty) and not penalty >= 0:
    raise ValueError(f"penalty is {penalty}; it must be at least 0")
  rewards, finished = as_float(rewards), jnp.asarray(finished, bool)
  chex.assert_equal_shape([rewards, finished])
  return jnp.where(finished, rewards, -penalty if replace else rewards - penalty)


def overlong(lengths: Array, max_length: int, buffer: int) -> Array:
  """DAPO: a penalty that grows over the last tokens before the length limit.

  `0` if `|o| <= L - C`, `((L - C) - |o|) / C` in between, and `-1` beyond `L`. It is
  added to the reward. Source: arXiv 2503.14476, which takes `L = 20480` and `C = 4096`.

  Args:
    lengths: `[...]` lengths of completions `|o|`, in tokens.
    max_length: length limit `L`, in tokens, positive.
    buffer: number `C` of tokens before the limit over which the penalty grows, from 1 to
      `max_length`.

  Returns:
    `[...]` float32, between -1 and 0.

  Raises:
    ValueError: if `buffer` is not between 1 and `max_length`.

  Example:
    >>> print(shaping.overlong(jnp.array([10, 16, 18, 25]), max_length=20, buffer=4))
    [ 0.   0.  -0.5 -1. ]
  """
  if not 1 <= buffer <= max_length:
    raise ValueError(
      f"buffer is {buffer} and max_length is {max_length}; buffer must be between 1 "
      "and max_length"
    )
  lengths = as_float(lengths)
  return jnp.clip((max_length - buffer - lengths) / buffer, -1.0, 0.0)


def rescale(rewards: Array, low: float, high: float) -> Array:
  """Rescales rewards of a known range to [0, 1].

  `(R - low) / (high - low)`; rewards out of the range are not clipped.

  Args:
    rewards: `[...]` rewards.
    low: the reward that becomes 0.
    high: the reward that becomes 1, above `low`.

  Returns:
    `[...]` float32.

  Raises:
    ValueError: if `low` is not below `high`.

  Example:
    >>> print(shaping.rescale(jnp.array([-1.0, 0.0, 3.0]), low=-1.0, high=3.0))
    [0.   0.25 1.  ]
  """
  if is_concrete(low, high) and not low < high:
    raise ValueError(f"low is {low} and high is {high}; low must be below high")
  return (as_float(rewards) - low) / (high - low)


def clip(rewards: Array, low: float, high: float) -> Array:
  """Clips rewards.

  `min(max(R, low), high)`.

  Args:
    rewards: `[...]` rewards.
    low: the smallest reward.
    high: the largest reward, at least `low`.

  Returns:
    `[...]` float32.

  Raises:
    ValueError: if `low` is above `high`.

  Example:
    >>> print(shaping.clip(jnp.array([-5.0, 0.5, 5.0]), low=-1.0, high=1.0))
    [-1.   0.5  1. ]
  """
  if is_concrete(low, high) and not low <= high:
    raise ValueError(f"low is {low} and high is {high}; low must not be above high")
  return jnp.clip(as_float(rewards), low, high)
