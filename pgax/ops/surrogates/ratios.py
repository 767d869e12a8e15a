"""What the surrogates share: ratios, checked settings, and where a loss stands."""

import numbers

import chex
import jax
import jax.numpy as jnp

from pgax.ops.kl import MAX_LOG_RATIO
from pgax.ops.masking import masked_sum, select
from pgax.types import Array


def floats(*arrays: Array) -> list[Array]:
  """Arrays of one shape as float32.

  Args:
    *arrays: `[...]` of one shape, any dtype.

  Returns:
    The same as float32.
  """
  chex.assert_equal_shape(arrays)
  return [jnp.asarray(x, jnp.float32) for x in arrays]


def masked_floats(mask: Array, *arrays: Array) -> list[Array]:
  """Arrays of one shape as float32, whatever their padding holds.

  Args:
    mask: `[..., T]` bool or 0/1.
    *arrays: `[..., T]`, any dtype.

  Returns:
    The same as float32, 0 on padding.
  """
  return [select(x, mask) for x in floats(*arrays)]


def check_clip(clip_low: float, clip_high: float) -> None:
  """Refuses bounds of a ratio that are out of their range.

  Args:
    clip_low: how far the ratio may fall below 1.
    clip_high: how far the ratio may rise above 1.

  Raises:
    ValueError: if `clip_low` is not in [0, 1], or `clip_high` is negative.
  """
  if not 0 <= clip_low <= 1 or not clip_high >= 0:  # so that nan is refused too
    raise ValueError(
      f"clip_low is {clip_low} and clip_high is {clip_high}; allowed are clip_low in "
      "[0, 1] and clip_high >= 0"
    )


def check_positive(name: str, value: Array | float) -> None:
  """Refuses a number that is not positive; an array (it may be traced) is let through.

  Args:
    name: what the number is called.
    value: the number.

  Raises:
    ValueError: if it is a number and not positive.
  """
  if isinstance(value, numbers.Real) and not value > 0:
    raise ValueError(f"{name} is {value}; it must be positive")


def ratio(logp: Array, old_logp: Array) -> Array:
  """Importance ratio of the live policy to the one that the update starts from.

  `exp(clip(logp - sg(old_logp), -20, 20))`: finite whatever the log-probabilities are. A
  token beyond these limits has no gradient, whether or not its loss has a clip.

  Args:
    logp: `[...]` live log-probabilities, nats.
    old_logp: `[...]` of the policy that the update starts from, nats.

  Returns:
    `[...]` float32.
  """
  logp, old_logp = floats(logp, old_logp)
  log_ratio = logp - jax.lax.stop_gradient(old_logp)
  return jnp.exp(jnp.clip(log_ratio, -MAX_LOG_RATIO, MAX_LOG_RATIO))


def masked_log_ratio(logp: Array, old_logp: Array, mask: Array) -> Array:
  """Log-ratio of every token, whatever the padding holds.

  `logp - sg(old_logp)`, not limited.

  Args:
    logp: `[..., T]` live log-probabilities, nats.
    old_logp: `[..., T]` of the policy to compare with, nats.
    mask: `[..., T]` bool or 0/1.

  Returns:
    `[..., T]` float32, nats; 0 on padding.
  """
  logp, old_logp = masked_floats(mask, logp, old_logp)
  return logp - jax.lax.stop_gradient(old_logp)


def sequence_log_ratio(logp: Array, old_logp: Array, mask: Array) -> Array:
  """Log-ratio of every completion.

  `sum_t (logp - sg(old_logp))`, not limited.

  Args:
    logp: `[..., T]` live log-probabilities, nats.
    old_logp: `[..., T]` of the policy to compare with, nats.
    mask: `[..., T]` bool or 0/1.

  Returns:
    `[...]` float32, nats; 0 for an empty completion.
  """
  return masked_sum(masked_log_ratio(logp, old_logp, mask), mask, axis=-1)


def at_tokens(x: Array, mask: Array) -> Array:
  """What holds for a completion, at every one of its tokens.

  Args:
    x: `[...]` one entry for each completion.
    mask: `[..., T]` bool or 0/1.

  Returns:
    `[..., T]`, the dtype of `x`; 0 on padding.
  """
  return select(jnp.broadcast_to(x[..., None], jnp.shape(mask)), mask)
