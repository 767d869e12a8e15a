"""Prompts over the limit: left out and counted, where that is asked for."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from pgax.data.mixture import subset
from pgax.data.prompts import CollatePrompts
from pgax.data.task import Task
from pgax.types import Example


def within_limit(task: Task, collate: CollatePrompts) -> tuple[Task, int]:
  """A task without the problems whose prompts are over the limit; it reads them all.

  Args:
    task: the whole task.
    collate: tokenizes prompts, and has the limit.

  Returns:
    The task, and the number of problems left out of both splits.

  Raises:
    ValueError: if nothing is left of a split, or of a part of a mixture.
  """
  splits, dropped = {}, 0
  for name, examples in (("train", task.train), ("held_out", task.held_out)):
    kept = _within(examples, collate)
    if not len(kept):
      raise ValueError(
        f"all {len(examples)} prompts of the split {name!r} have more than "
        f"{collate.max_prompt_tokens} tokens, which max_prompt_tokens allows"
      )
    try:
      splits[name] = subset(examples, kept)
    except ValueError as error:
      raise ValueError(
        f"{error} in the split {name!r}: prompts of more than {collate.max_prompt_tokens} "
        "tokens, which max_prompt_tokens allows, are left out"
      ) from None
    dropped += len(examples) - len(kept)
  return dataclasses.replace(task, **splits), dropped


def _within(examples: Sequence[Example], collate: CollatePrompts) -> np.ndarray:
  """Indices of the examples that are within the limit."""
  limit = collate.max_prompt_tokens
  kept = [i for i in range(len(examples)) if len(collate.encode(examples[i])) <= limit]
  return np.asarray(kept, np.int64)
