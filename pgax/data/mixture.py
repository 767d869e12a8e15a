"""Several tasks as one, in proportions."""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from pgax.data.task import Subset, Task
from pgax.types import Example

# Where the metadata of a problem have the name of its task.
NAME = "mixture"


def named(example: Example, name: str) -> Example:
  """An example with the name of its task; that of a mixture within stays."""
  if NAME in example.metadata:
    return example
  return dataclasses.replace(example, metadata={**example.metadata, NAME: name})


@dataclasses.dataclass(frozen=True, eq=False)
class Mixture:
  """The examples of several parts: as a sequence, every one of them once.

  Every beginning of the sequence has the parts in proportion to their weights, as far as
  they reach. A training run draws by `pipeline.batches` instead, which goes on with each
  part in epochs of its own.

  Attributes:
    parts: names and examples.
    weights: of the parts, positive.
    order: `[size]` int64, where each example stands in the parts, one after the other.
  """

  parts: tuple[tuple[str, Sequence[Example]], ...]
  weights: tuple[float, ...]
  order: np.ndarray = dataclasses.field(init=False, repr=False)

  def __post_init__(self):
    # Example k of a part is due when k + 1/2 of its weight have been drawn.
    sizes = [len(examples) for _, examples in self.parts]
    due = [(np.arange(n) + 0.5) / w for n, w in zip(sizes, self.weights, strict=True)]
    order = np.argsort(np.concatenate(due), kind="stable")
    object.__setattr__(self, "order", order)

  def __len__(self) -> int:
    return len(self.order)

  def __getitem__(self, position: int) -> Example:
    place = int(self.order[position])
    for name, examples in self.parts:
      if place < len(examples):
        return named(examples[place], name)
      place -= len(examples)
    raise AssertionError("the order has no place beyond the parts")


def first_of_each(examples: Sequence[Example]) -> Iterator[Example]:
  """The first example, of a `Mixture` that of every part."""
  if not isinstance(examples, Mixture):
    yield examples[0]
    return
  for name, part in examples.parts:
    yield from (named(example, name) for example in first_of_each(part))


def subset(examples: Sequence[Example], kept: np.ndarray) -> Sequence[Example]:
  """Some of the examples; those of a `Mixture` are one still, of the same weights.

  Args:
    examples: all of them.
    kept: `[size]` int64, indices of those that stay, ascending.

  Returns:
    The examples that stay; those of a part in their order.

  Raises:
    ValueError: if nothing is left of a part of a mixture.
  """
  if len(kept) == len(examples):
    return examples
  if not isinstance(examples, Mixture):
    return Subset(examples, kept)
  parts, places, start = [], np.sort(examples.order[kept]), 0
  for name, part in examples.parts:
    inside = places[(places >= start) & (places < start + len(part))] - start
    if not len(inside):
      raise ValueError(
        f"none of the {len(part)} problems of the mixture's part {name!r} is left"
      )
    parts.append((name, subset(part, inside)))
    start += len(part)
  return Mixture(tuple(parts), examples.weights)


def mixture(tasks: Mapping[str, Task], weights: Mapping[str, float]) -> Task:
  """Several tasks as one, whose batches hold them in proportion to their weights.

  In a config, `entry(mixture, tasks={"a": entry(...), "b": entry(...)}, weights={...})`.
  `rewards.by_task` gives each its own reward function.

  Args:
    tasks: by name.
    weights: of the tasks, by the same names; positive, in any unit.

  Returns:
    A `Task`; the name stands in the metadata of every problem, under `mixture`.

  Raises:
    ValueError: if a task has no weight or a weight no task, or a weight is not positive.
  """
  if not tasks or tasks.keys() != weights.keys():
    raise ValueError(
      f"weights are given for {sorted(weights)} and tasks for {sorted(tasks)}; each task "
      "needs one weight, and there must be one at least"
    )
  for name, weight in weights.items():
    if not 0 < weight < math.inf:
      raise ValueError(f"the weight of {name} is {weight}; it must be positive, and finite")
  # By name, so that the order in which a file keeps them makes no difference.
  names = sorted(tasks)
  shares = tuple(float(weights[name]) for name in names)
  return Task(
    train=Mixture(tuple((name, tasks[name].train) for name in names), shares),
    held_out=Mixture(tuple((name, tasks[name].held_out) for name in names), shares),
    bad_rows=tuple(row for name in names for row in tasks[name].bad_rows),
    filtered=sum(tasks[name].filtered for name in names),
  )
