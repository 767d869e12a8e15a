"""Sums of two small numbers as questions, for models that read a chat."""

import itertools

import numpy as np

from pgax.data.task import Task
from pgax.data.templates import fill
from pgax.errors import UserError
from pgax.types import Example

_HELD_OUT = 1 / 3  # there are few problems, and accuracy should not be too coarse


def small_sums(
  largest: int = 12, template: str = "{prompt} = ? Answer:", seed: int = 0
) -> Task:
  """Makes all sums of two numbers from 1 up; `rewards.NumericMatch` scores them.

  Args:
    largest: largest number that is added, at least 2.
    template: prompt with `{prompt}` in place of the sum, such as `3 + 4`.
    seed: random seed of the split.

  Returns:
    A `Task` that holds out a third of the sums. A solution is the answer alone.

  Raises:
    UserError: if `largest` or the template is invalid.
  """
  if largest < 2:
    raise UserError(f"largest is {largest}; it must be at least 2")
  pairs = list(itertools.product(range(1, largest + 1), repeat=2))
  order = np.random.default_rng(seed).permutation(len(pairs))
  examples = []
  for a, b in (pairs[i] for i in order):
    answer = str(a + b)
    examples.append(Example(fill(template, f"{a} + {b}"), answer, answer))
  held_out = int(len(examples) * _HELD_OUT)
  return Task(examples[held_out:], examples[:held_out])
