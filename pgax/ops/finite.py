"""Finite numbers, and a choice between two pytrees."""

from typing import TypeVar

import jax
import jax.numpy as jnp

from pgax.types import Array

T = TypeVar("T")


def all_finite(*numbers: Array) -> Array:
  """Computes whether all scalars are finite.

  Args:
    *numbers: scalars of any dtype.

  Returns:
    A bool scalar.

  Example:
    >>> print(all_finite(1.0, jnp.inf))
    False
  """
  return jnp.all(jnp.isfinite(jnp.stack([jnp.float32(x) for x in numbers])))


def take_if(condition: Array, after: T, before: T) -> T:
  """Chooses between two pytrees; the other one may hold nan.

  Args:
    condition: bool scalar.
    after: pytree to choose if it is true.
    before: pytree of the same structure to choose otherwise.

  Returns:
    One of them, to the bit.

  Example:
    >>> print(take_if(False, {"x": jnp.nan}, {"x": 2.0})["x"])
    2.0
  """
  return jax.tree.map(lambda a, b: jnp.where(condition, a, b), after, before)
