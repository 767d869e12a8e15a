"""Several reward functions, one for each task of a mixture."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from pgax.types import NO_METADATA, RewardFn


@dataclasses.dataclass(frozen=True)
class ByTask:
  """Scores a completion by the reward function of the task that its problem is of.

  Attributes:
    functions: `(name, function)` of each task; see `pgax.data.mixture`.
  """

  functions: tuple[tuple[str, RewardFn], ...]

  def __post_init__(self):
    for name, function in self.functions:
      if name in ("", "reward", "accuracy") or not callable(function):
        raise ValueError(
          f"functions has {name!r}: {function!r}; it must be a reward function, and its "
          "name neither empty nor 'reward' nor 'accuracy'"
        )

  def __call__(
    self,
    prompt: str,
    completion: str,
    ground_truth: str,
    metadata: Mapping[str, Any] = NO_METADATA,
  ) -> dict[str, float]:
    """Scores a completion.

    Args:
      prompt: as for a `RewardFn`.
      completion: as for a `RewardFn`.
      ground_truth: as for a `RewardFn`.
      metadata: `mixture`, the name of the task, and what its function looks at.

    Returns:
      `reward`; `accuracy`, where the function tells none whether the reward is at least 1;
      the reward again by the name of the task; and every other score as `NAME/SCORE`.

    Raises:
      ValueError: if there is no function of that name.
    """
    functions, task = dict(self.functions), metadata.get("mixture")
    if task not in functions:
      raise ValueError(
        f"the problem is of task {task!r}; there are reward functions for "
        f"{', '.join(sorted(functions))}"
      )
    told = functions[task](prompt, completion, ground_truth, metadata)
    others = {f"{task}/{name}": x for name, x in told.items() if name != "reward"}
    accuracy = told.get("accuracy", float(told["reward"] >= 1))
    shared = {"reward": told["reward"], "accuracy": accuracy, task: told["reward"]}
    return shared | others


def by_task(functions: Mapping[str, RewardFn]) -> ByTask:
  """A `ByTask` from a mapping, as a config has it.

  In a config, `entry(by_task, functions={"gsm8k": entry(Math), "sums": final_answer})`.
  """
  return ByTask(tuple(sorted(functions.items())))
