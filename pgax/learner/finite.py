"""Optimizer steps that are not finite are not taken."""

from typing import TypeVar

import jax
import jax.numpy as jnp

from pgax.types import Array

T = TypeVar("T")


def all_finite(*numbers: Array) -> Array:
  """Returns whether all scalars are finite, as a bool scalar."""
  return jnp.all(jnp.isfinite(jnp.stack([jnp.float32(x) for x in numbers])))


def take_if(condition: Array, after: T, before: T) -> T:
  """Chooses between two pytrees; what is not chosen may hold nan.

  Args:
    condition: bool scalar.
    after: pytree to choose if it is true.
    before: pytree of the same structure to choose otherwise.

  Returns:
    One of them, to the bit.
  """
  return jax.tree.map(lambda a, b: jnp.where(condition, a, b), after, before)
