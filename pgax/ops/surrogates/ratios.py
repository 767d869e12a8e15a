"""Helpers of the surrogates: ratios, checks of settings, losses of completions."""

import numbers

import chex
import jax
import jax.numpy as jnp

from pgax.ops.kl import MAX_LOG_RATIO
from pgax.ops.masking import masked_sum, select
from pgax.ops.precision import as_float, is_concrete
from pgax.types import Array


def as_floats(*arrays: Array) -> list[Array]:
  """Converts arrays of the same shape to floats; see `precision.as_float`.

  Args:
    *arrays: `[...]` arrays of the same shape and any dtype.

  Returns:
    The arrays as float32 or float64.
  """
  chex.assert_equal_shape(arrays)
  return [as_float(x) for x in arrays]


def masked_floats(mask: Array, *arrays: Array) -> list[Array]:
  """Converts arrays of the same shape to floats, with masked entries at 0.

  Args:
    mask: `[..., T]` bool or 0/1, the loss mask.
    *arrays: `[..., T]` arrays of any dtype.

  Returns:
    The arrays as float32 or float64, 0 where masked.
  """
  return [select(x, mask) for x in as_floats(*arrays)]


def check_clip(clip_low: float, clip_high: float) -> None:
  """Rejects bounds of a ratio that are out of range.

  Args:
    clip_low: largest distance of the ratio below 1.
    clip_high: largest distance of the ratio above 1.

  Raises:
    ValueError: if `clip_low` is not in [0, 1], or `clip_high` is negative.
  """
  concrete = is_concrete(clip_low, clip_high)
  if concrete and not (0 <= clip_low <= 1 and clip_high >= 0):  # rejects nan, too
    raise ValueError(
      f"clip_low is {clip_low} and clip_high is {clip_high}; allowed are clip_low in "
      "[0, 1] and clip_high >= 0"
    )


def check_positive(name: str, value: Array | float) -> None:
  """Rejects a number that is not positive. Arrays, which may be traced, are not checked.

  Args:
    name: name of the setting.
    value: value of the setting.

  Raises:
    ValueError: if `value` is a number and not positive.
  """
  if isinstance(value, numbers.Real) and not value > 0:
    raise ValueError(f"{name} is {value}; it must be positive")


def ratio(logp: Array, old_logp: Array) -> Array:
  """Importance ratio of the policy to the old policy.

  `exp(clip(logp - old_logp, -20, 20))`, finite for any finite log-probabilities. A token
  beyond these limits has no gradient, even in a loss without a clip.

  Args:
    logp: `[...]` log-probabilities, nats.
    old_logp: `[...]` log-probabilities under the old policy, nats.

  Returns:
    `[...]` float32.

  Example:
    >>> logp, old_logp = jnp.log(jnp.array([[0.6, 0.1], [0.5, 0.2]]))
    >>> print(surrogates.ratio(logp, old_logp))
    [1.2 0.5]
  """
  logp, old_logp = as_floats(logp, old_logp)
  log_ratio = logp - jax.lax.stop_gradient(old_logp)
  return jnp.exp(jnp.clip(log_ratio, -MAX_LOG_RATIO, MAX_LOG_RATIO))


def masked_log_ratio(logp: Array, old_logp: Array, mask: Array) -> Array:
  """Log-ratio of every token.

  `logp - old_logp`, without a limit.

  Args:
    logp: `[..., T]` log-probabilities, nats.
    old_logp: `[..., T]` log-probabilities under the other policy, nats.
    mask: `[..., T]` bool or 0/1, the loss mask.

  Returns:
    `[..., T]` float32, nats; 0 where masked.
  """
  logp, old_logp = masked_floats(mask, logp, old_logp)
  return logp - jax.lax.stop_gradient(old_logp)


def sequence_log_ratio(logp: Array, old_logp: Array, mask: Array) -> Array:
  """Log-ratio of every completion.

  `sum_t (logp - old_logp)`, without a limit.

  Args:
    logp: `[..., T]` log-probabilities, nats.
    old_logp: `[..., T]` log-probabilities under the other policy, nats.
    mask: `[..., T]` bool or 0/1, the loss mask.

  Returns:
    `[...]` float32, nats; 0 for an empty completion.
  """
  return masked_sum(masked_log_ratio(logp, old_logp, mask), mask, axis=-1)


def at_tokens(x: Array, mask: Array) -> Array:
  """Repeats the value of a completion at each of its tokens.

  Args:
    x: `[...]` one value for each completion.
    mask: `[..., T]` bool or 0/1, the loss mask.

  Returns:
    `[..., T]`, of the dtype of `x`; 0 where masked.
  """
  return select(jnp.broadcast_to(x[..., None], jnp.shape(mask)), mask)
