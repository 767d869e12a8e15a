"""One reward function for each task of a mixture."""

import dataclasses
from collections.abc import Mapping

from pgax.types import NO_METADATA, Metadata, RewardFn


@dataclasses.dataclass(frozen=True)
class ByTask:
  """Scores a completion by the reward function of its problem's task.

  Attributes:
    functions: `(name, function)` of each task of a `pgax.data.mixture`.
  """

  functions: tuple[tuple[str, RewardFn], ...]

  def __post_init__(self):
    for name, function in self.functions:
      if name in ("", "reward", "accuracy") or not callable(function):
        raise ValueError(
          f"functions has {name!r}: {function!r}; it must be a reward function, and its "
          "name must be neither empty nor 'reward' nor 'accuracy'"
        )

  def __call__(
    self, prompt: str, completion: str, ground_truth: str, metadata: Metadata = NO_METADATA
  ) -> dict[str, float]:
    """Scores a completion.

    `ground_truth` is the value that the task's function compares with. `metadata` has the
    task's name under `mixture`, and the metadata of the task's function.

    Returns:
      `reward`; `accuracy`, which is 1.0 for a reward of at least 1 and 0.0 otherwise if the
      function does not return it; the reward again under the task's name; and every other
      score as `TASK/SCORE`.

    Raises:
      ValueError: if no function has the task's name.
    """
    functions, task = dict(self.functions), metadata.get("mixture")
    if task not in functions:
      raise ValueError(
        f"the problem's task is {task!r}; there are reward functions for "
        f"{', '.join(sorted(functions))}"
      )
    scores = functions[task](prompt, completion, ground_truth, metadata)
    reward = scores["reward"]
    accuracy = scores.get("accuracy", float(reward >= 1))
    others = {f"{task}/{name}": x for name, x in scores.items() if name != "reward"}
    return {"reward": reward, "accuracy": accuracy, task: reward} | others


def by_task(functions: Mapping[str, RewardFn]) -> ByTask:
  """Creates a `ByTask` from a mapping, the form that configs use.

  In a config, `entry(by_task, functions={"gsm8k": entry(Math), "sums": final_answer})`.

  Args:
    functions: reward functions, keyed by the names of their tasks.

  Returns:
    A `ByTask`.
  """
  return ByTask(tuple(sorted(functions.items())))
