"""The precision of all arithmetic: float32, or float64 for inputs in float64."""

import jax
import jax.numpy as jnp

from pgax.types import Array


def as_float(x: Array | float) -> Array:
  """Converts numbers to float32, except that those in float64 stay float64.

  JAX has float64 only if `jax_enable_x64` is set. A Python number takes the precision of
  the arrays that it is combined with.

  Args:
    x: a number or an array of any dtype.

  Returns:
    The array, in float32 or float64.
  """
  array = jnp.asarray(x)
  wide = jnp.issubdtype(array.dtype, jnp.floating) and array.dtype.itemsize == 8
  return array if wide else array.astype(jnp.float32)


def is_concrete(*values: Array | float) -> bool:
  """Returns whether values are known, and not traced: only then can their range be checked.

  Settings of an algorithm are arguments of a compiled step, so that changing them compiles
  nothing. Their ranges are checked before, where they are numbers.
  """
  return not any(isinstance(value, jax.core.Tracer) for value in values)
