"""Removes problems whose prompts exceed the token limit."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from pgax.data.mixture import subset
from pgax.data.prompts import CollatePrompts
from pgax.data.task import Task
from pgax.types import Example


def within_limit(task: Task, collate: CollatePrompts) -> tuple[Task, int]:
  """Removes the problems whose prompts exceed the limit; reads all problems.

  Args:
    task: the task.
    collate: tokenizes prompts and has the limit.

  Returns:
    The remaining task, and the number of problems removed from both splits.

  Raises:
    ValueError: if no problem of a split, or of a part of a mixture, remains.
  """
  splits, removed = {}, 0
  for name, examples in (("train", task.train), ("held_out", task.held_out)):
    indices = _within(examples, collate)
    if not len(indices):
      raise ValueError(
        f"all {len(examples)} prompts of the split {name!r} have more than the "
        f"{collate.max_prompt_tokens} tokens that max_prompt_tokens allows"
      )
    try:
      splits[name] = subset(examples, indices)
    except ValueError as error:
      raise ValueError(
        f"{error} in the split {name!r}: prompts with more than the "
        f"{collate.max_prompt_tokens} tokens that max_prompt_tokens allows are removed"
      ) from None
    removed += len(examples) - len(indices)
  return dataclasses.replace(task, **splits), removed


def _within(examples: Sequence[Example], collate: CollatePrompts) -> np.ndarray:
  """Returns the indices of the examples within the limit."""
  limit = collate.max_prompt_tokens
  indices = [i for i in range(len(examples)) if len(collate.encode(examples[i])) <= limit]
  return np.asarray(indices, np.int64)
