"""Problems of reasoning-gym, generated as they are asked for; an extra."""

import dataclasses
import random
from collections.abc import Mapping
from typing import Any

from pgax.data.task import Task
from pgax.data.templates import fill
from pgax.tasks.reasoning_gym import make_dataset
from pgax.types import Example

# How often a training problem that is a held-out one is drawn again.
_REDRAWS = 7


@dataclasses.dataclass(frozen=True, eq=False)
class GymProblems:
  """Training problems, in random access.

  Attributes:
    name: of the task.
    settings: of its configuration.
    template: the prompt, with `{prompt}` where the question stands.
    size: number of problems.
    stride: number of problems to the next draw.
    dataset: of reasoning-gym.
    held_out: questions that are held out.
  """

  name: str
  settings: Mapping[str, Any]
  template: str
  size: int
  stride: int
  dataset: Any
  held_out: frozenset[str]

  def __len__(self) -> int:
    return self.size

  def __getitem__(self, position: int) -> Example:
    if not 0 <= position < self.size:
      raise IndexError(f"position is {position}; there are {self.size} problems")
    for draw in range(_REDRAWS + 1):
      entry = _entry(self.dataset, position + draw * self.stride)
      if entry["question"] not in self.held_out:
        return _example(entry, self.name, self.settings, self.template)
    raise ValueError(
      f"{self.name} with {dict(self.settings)} has too few different problems: "
      f"{_REDRAWS + 1} draws were all among the {len(self.held_out)} that are held out"
    )


def _entry(dataset: Any, index: int) -> Mapping[str, Any]:
  """A problem of a dataset, the same however often and in what order they are asked for."""
  state = random.getstate()
  random.seed(
    f"{dataset.seed} {index}"
  )  # for the tasks that draw from the global generator
  try:
    return dataset[index]
  finally:
    random.setstate(state)


def _example(
  entry: Mapping[str, Any], name: str, settings: Mapping[str, Any], template: str
) -> Example:
  # Where many answers are right, some tasks give none.
  answer = "" if entry["answer"] is None else str(entry["answer"])
  return Example(
    prompt=fill(template, entry["question"]),
    ground_truth=answer,
    solution=answer,
    metadata={"task": name, "settings": settings, "entry": entry},
  )


def reasoning_gym(
  name: str,
  settings: Mapping[str, Any],
  template: str = "{prompt}\n",
  train_size: int = 5000,
  held_out_size: int = 256,
  seed: int = 0,
) -> Task:
  """A task of reasoning-gym (arXiv 2505.24760); `rewards.ReasoningGym` scores it.

  Args:
    name: of the task, such as `chain_sum`; all are allowed but `composite`.
    settings: of its configuration, such as `{"max_terms": 3}`; but not `seed` and `size`.
    template: the prompt, with `{prompt}` where the question stands.
    train_size: number of training problems.
    held_out_size: number of problems to be judged by; no question of theirs is trained on.
    seed: of the generator.

  Returns:
    A `Task`. The solutions are the answers alone, and empty where the task tells none.

  Raises:
    ValueError: if reasoning-gym is not there, or for a bad argument.
  """
  for argument, value in (("train_size", train_size), ("held_out_size", held_out_size)):
    if value < 1:
      raise ValueError(f"{argument} is {value}; it must be at least 1")
  if own := {"seed", "size"} & settings.keys():
    raise ValueError(f"settings has {sorted(own)}; seed, train_size, held_out_size set it")
  fill(template, "")
  settings, stride = dict(settings), train_size + held_out_size
  size = stride * (_REDRAWS + 1)
  dataset = make_dataset(name, settings | {"seed": seed, "size": size})
  entries = [_entry(dataset, index) for index in range(train_size, stride)]
  questions = frozenset(entry["question"] for entry in entries)
  return Task(
    train=GymProblems(name, settings, template, train_size, stride, dataset, questions),
    held_out=tuple(_example(entry, name, settings, template) for entry in entries),
  )
