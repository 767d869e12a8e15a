"""Masked reductions, and the replacement of padding that keeps gradients finite.

A reduction here never lets padding into its value. For the gradient of what was computed
*before* the reduction that is not enough: `0 * inf` is nan. So the inputs of a formula go
through `select` first, and its results through a masked reduction.
"""

import chex
import jax.numpy as jnp

from pgax.types import Array


def select(x: Array, mask: Array, fill: float = 0.0) -> Array:
  """Replaces masked entries by a constant, so that nothing downstream sees them.

  `where(mask, x, fill)`. Applied to the *inputs* of a formula this is the first half of
  the double-where pattern: padding that holds inf or nan then reaches neither the value
  nor the gradient, because `0 * nan` is never formed.

  Args:
    x: `[...]` any dtype.
    mask: `[...]` bool or 0/1, the shape of `x`.
    fill: the constant.

  Returns:
    `[...]`, the dtype of `x`.
  """
  x, mask = jnp.asarray(x), jnp.asarray(mask, bool)
  chex.assert_equal_shape([x, mask])
  return jnp.where(mask, x, jnp.asarray(fill, x.dtype))


def masked_sum(x: Array, mask: Array, axis: int | tuple[int, ...] | None = None) -> Array:
  """Sum over entries where the mask is 1, in float32.

  Args:
    x: `[...]` real values; masked entries may hold inf or nan.
    mask: `[...]` bool or 0/1, the shape of `x`.
    axis: axes to reduce; all by default.

  Returns:
    The sum, 0 where the mask is empty.
  """
  return jnp.sum(select(jnp.asarray(x, jnp.float32), mask), axis=axis)


def masked_mean(x: Array, mask: Array, axis: int | tuple[int, ...] | None = None) -> Array:
  """Mean over entries where the mask is 1, in float32.

  Args:
    x: `[...]` real values; masked entries may hold inf or nan.
    mask: `[...]` bool or 0/1, the shape of `x`.
    axis: axes to reduce; all by default.

  Returns:
    The mean, 0 where the mask is empty.
  """
  count = jnp.sum(jnp.asarray(mask, jnp.float32), axis=axis)
  return masked_sum(x, mask, axis) / jnp.maximum(count, 1.0)


def lengths(mask: Array) -> Array:
  """Number of real tokens of each sequence.

  Args:
    mask: `[..., T]` bool or 0/1.

  Returns:
    `[...]` float32, in tokens.
  """
  return jnp.sum(jnp.asarray(mask, jnp.float32), axis=-1)
