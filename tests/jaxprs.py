"""What a traced program computes, without compiling it."""

import math
from collections.abc import Iterator

import jax


def arrays(jaxpr) -> Iterator[jax.ShapeDtypeStruct]:
  """Yields the type of every array that a program computes, loops and branches included."""
  for equation in getattr(jaxpr, "jaxpr", jaxpr).eqns:
    yield from (x.aval for x in equation.outvars if hasattr(x.aval, "shape"))
    for value in equation.params.values():
      for inner in value if isinstance(value, tuple | list) else [value]:
        if hasattr(inner, "eqns") or hasattr(inner, "jaxpr"):
          yield from arrays(inner)


def largest(jaxpr) -> int:
  """Returns the number of elements of the largest array that a program computes."""
  return max(math.prod(x.shape) for x in arrays(jaxpr))
