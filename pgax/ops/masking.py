"""Masked reductions, and the replacement of padding that keeps gradients finite.

Masked entries never reach the value of a reduction. For gradients of the terms that are
reduced that is not enough, because `0 * inf` is nan. So the inputs of a formula go through
`select` first, and its results through a masked reduction.
"""

import chex
import jax.numpy as jnp

from pgax.ops.precision import as_float
from pgax.types import Array


def select(x: Array, mask: Array, fill: float = 0.0) -> Array:
  """Replaces masked entries by a constant.

  `where(mask, x, fill)`. Applied to the *inputs* of a formula it is the first half of the
  double-where pattern: masked entries that hold inf or nan reach neither value nor
  gradient, because `0 * nan` is never computed.

  Args:
    x: `[...]` values of any dtype.
    mask: `[...]` bool or 0/1, of the shape of `x`.
    fill: the constant.

  Returns:
    `[...]`, the dtype of `x`.

  Example:
    >>> print(masking.select(jnp.array([1.0, jnp.nan, 3.0]), jnp.array([1, 0, 1])))
    [1. 0. 3.]
  """
  x, mask = jnp.asarray(x), jnp.asarray(mask, bool)
  chex.assert_equal_shape([x, mask])
  return jnp.where(mask, x, jnp.asarray(fill, x.dtype))


def masked_sum(x: Array, mask: Array, axis: int | tuple[int, ...] | None = None) -> Array:
  """Sum over entries where the mask is 1, in float32.

  Args:
    x: `[...]` real values; masked entries may hold inf or nan.
    mask: `[...]` bool or 0/1, of the shape of `x`.
    axis: axes to reduce; None for all.

  Returns:
    The sum, 0 where the mask is empty.

  Example:
    >>> print(masking.masked_sum(jnp.array([1.0, jnp.nan, 3.0]), jnp.array([1, 0, 1])))
    4.0
  """
  return jnp.sum(select(as_float(x), mask), axis=axis)


def masked_mean(x: Array, mask: Array, axis: int | tuple[int, ...] | None = None) -> Array:
  """Mean over entries where the mask is 1, in float32.

  Args:
    x: `[...]` real values; masked entries may hold inf or nan.
    mask: `[...]` bool or 0/1, of the shape of `x`.
    axis: axes to reduce; None for all.

  Returns:
    The mean, 0 where the mask is empty.

  Example:
    >>> print(masking.masked_mean(jnp.array([1.0, jnp.nan, 3.0]), jnp.array([1, 0, 1])))
    2.0
  """
  count = jnp.sum(as_float(mask), axis=axis)
  return masked_sum(x, mask, axis) / jnp.maximum(count, 1.0)


def lengths(mask: Array) -> Array:
  """Number of unmasked tokens of each sequence.

  Args:
    mask: `[..., T]` bool or 0/1.

  Returns:
    `[...]` float32, in tokens.

  Example:
    >>> print(masking.lengths(jnp.array([[1, 1, 0], [0, 0, 0]])))
    [2. 0.]
  """
  return jnp.sum(as_float(mask), axis=-1)
