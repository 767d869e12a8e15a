"""Tasks: the problems that a run trains on and those that it is evaluated on."""

import dataclasses
import hashlib
from collections.abc import Callable, Sequence

import numpy as np

from pgax.types import Example, TokenReward

# Fraction of generated problems that is held out.
HELD_OUT_FRACTION = 0.1


@dataclasses.dataclass(frozen=True)
class Task:
  """Problems to train on and problems to evaluate on; the two must not overlap.

  Attributes:
    train: training problems.
    held_out: problems that accuracy is measured on.
    bad_rows: location and fault of each row that was skipped.
    filtered: number of training problems that a filter removed.
    token_reward: makes the task's reward as a function of arrays, for models whose tokens
      have the given bytes (see `tokenizer.token_bytes`); None if there is none.
  """

  train: Sequence[Example]
  held_out: Sequence[Example]
  bad_rows: tuple[str, ...] = ()
  filtered: int = 0
  token_reward: Callable[[Sequence[bytes]], TokenReward] | None = None

  def __post_init__(self):
    for name, examples in (("train", self.train), ("held_out", self.held_out)):
      if not len(examples):
        raise ValueError(
          f"the task's split {name!r} is empty; it needs at least one problem"
        )


@dataclasses.dataclass(frozen=True, eq=False)
class Subset:
  """Random access to a subset of examples.

  Attributes:
    examples: all examples.
    indices: `[size]` int64, indices of the examples in the subset.
  """

  examples: Sequence[Example]
  indices: np.ndarray

  def __len__(self) -> int:
    return len(self.indices)

  def __getitem__(self, position: int) -> Example:
    return self.examples[int(self.indices[position])]


def fingerprint(examples: Sequence[Example], count: int = 64) -> dict[str, int | str]:
  """Computes a fingerprint that distinguishes lists of problems by a sample of them.

  Args:
    examples: problems.
    count: number of evenly spaced problems to hash.

  Returns:
    `size` of the list and `hash` of prompts and ground truths, as JSON values.
  """
  digest = hashlib.blake2b(digest_size=8)
  for index in np.linspace(0, len(examples) - 1, count).astype(int).tolist():
    example = examples[index]
    digest.update(repr((example.prompt, example.ground_truth)).encode())
  return {"size": len(examples), "hash": digest.hexdigest()}
