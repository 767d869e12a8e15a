"""Mixes tasks in proportion to weights."""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from pgax.data.task import Subset, Task
from pgax.types import Example

# Key of the task's name in the metadata of a problem.
NAME = "mixture"


def with_task_name(example: Example, name: str) -> Example:
  """Adds the name of the task to an example; a name from an inner mixture is kept."""
  if NAME in example.metadata:
    return example
  return dataclasses.replace(example, metadata={**example.metadata, NAME: name})


@dataclasses.dataclass(frozen=True, eq=False)
class Mixture:
  """The examples of several parts as one sequence that has each example once.

  Every prefix of the sequence has the parts in proportion to their weights, until a part is
  exhausted. Training does not read this sequence: `pipeline.batches` repeats each part in
  its own epochs.

  Attributes:
    parts: `(name, examples)` of each part.
    weights: weights of the parts, positive.
    order: `[size]` int64, index of each example in the concatenated parts.
  """

  parts: tuple[tuple[str, Sequence[Example]], ...]
  weights: tuple[float, ...]
  order: np.ndarray = dataclasses.field(init=False, repr=False)

  def __post_init__(self):
    # Example k of a part is due after (k + 1/2) / weight units of time.
    sizes = [len(examples) for _, examples in self.parts]
    due = [(np.arange(n) + 0.5) / w for n, w in zip(sizes, self.weights, strict=True)]
    order = np.argsort(np.concatenate(due), kind="stable")
    object.__setattr__(self, "order", order)

  def __len__(self) -> int:
    return len(self.order)

  def __getitem__(self, position: int) -> Example:
    index = int(self.order[position])
    for name, examples in self.parts:
      if index < len(examples):
        return with_task_name(examples[index], name)
      index -= len(examples)
    raise AssertionError("the order has no index beyond the parts")


def first_of_each(examples: Sequence[Example]) -> Iterator[Example]:
  """Yields the first example; for a `Mixture`, the first example of each part."""
  if not isinstance(examples, Mixture):
    yield examples[0]
    return
  for name, part in examples.parts:
    yield from (with_task_name(example, name) for example in first_of_each(part))


def subset(examples: Sequence[Example], indices: np.ndarray) -> Sequence[Example]:
  """Selects examples; a subset of a `Mixture` is a mixture with the same weights.

  Args:
    examples: all examples.
    indices: `[size]` int64, indices of the examples to select, ascending.

  Returns:
    The selected examples. Within each part of a mixture, they keep their order.

  Raises:
    ValueError: if no example of a part of a mixture is selected.
  """
  if len(indices) == len(examples):
    return examples
  if not isinstance(examples, Mixture):
    return Subset(examples, indices)
  parts, positions, start = [], np.sort(examples.order[indices]), 0
  for name, part in examples.parts:
    inside = (positions >= start) & (positions < start + len(part))
    part_indices = positions[inside] - start
    if not len(part_indices):
      raise ValueError(
        f"none of the {len(part)} problems of the mixture's part {name!r} remains"
      )
    parts.append((name, subset(part, part_indices)))
    start += len(part)
  return Mixture(tuple(parts), examples.weights)


def mixture(tasks: Mapping[str, Task], weights: Mapping[str, float]) -> Task:
  """Combines tasks into one whose batches have them in proportion to their weights.

  In a config, `entry(mixture, tasks={"a": entry(...), "b": entry(...)}, weights={...})`.
  `rewards.by_task` selects a reward function for each task.

  Args:
    tasks: tasks, keyed by name.
    weights: weights of the tasks, keyed by the same names; positive, in any unit.

  Returns:
    A `Task`. The metadata of every problem has the name of its task under `mixture`.

  Raises:
    ValueError: if a task has no weight, a weight has no task, or a weight is not positive.
  """
  if not tasks or tasks.keys() != weights.keys():
    raise ValueError(
      f"weights are given for {sorted(weights)} and tasks for {sorted(tasks)}; each task "
      "needs one weight, and there must be at least one task"
    )
  for name, weight in weights.items():
    if not 0 < weight < math.inf:
      raise ValueError(f"the weight of {name} is {weight}; it must be positive and finite")
  # Sorted by name, so the order of keys in a file does not matter.
  names = sorted(tasks)
  shares = tuple(float(weights[name]) for name in names)
  return Task(
    train=Mixture(tuple((name, tasks[name].train) for name in names), shares),
    held_out=Mixture(tuple((name, tasks[name].held_out) for name in names), shares),
    bad_rows=tuple(row for name in names for row in tasks[name].bad_rows),
    filtered=sum(tasks[name].filtered for name in names),
  )
