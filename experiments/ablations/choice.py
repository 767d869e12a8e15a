"""Parts of an algorithm as a choice by a number, so that all of them share a program."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp


@dataclasses.dataclass(frozen=True)
class Choice:
  """One of several parts that take the same arguments.

  The number is an argument of the compiled program, so a study compiles once for all parts.
  It computes only the chosen one, unless runs are mapped over at once.

  Attributes:
    parts: the parts; their outputs have the same shapes.
    index: index of the chosen part.
  """

  parts: tuple[Callable, ...]
  index: float = 0.0

  # Surrogates only: no part may compare the completions of a group.
  compares_completions = False

  def __call__(self, *arguments: Any) -> Any:
    index = jnp.asarray(self.index, jnp.int32)
    return jax.lax.switch(index, self.parts, *arguments)


def choose(part: Callable, parts: tuple[Callable, ...]) -> Choice:
  """Makes the choice of a part.

  Args:
    part: the chosen part.
    parts: all of them.

  Returns:
    A `Choice`.

  Raises:
    ValueError: if the part is none of them.
  """
  return Choice(parts, float(parts.index(part)))
