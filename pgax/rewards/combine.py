"""Combines reward functions into a weighted sum."""

import dataclasses
import math
from collections.abc import Mapping

from pgax.types import NO_METADATA, Metadata, RewardFn


@dataclasses.dataclass(frozen=True)
class Combined:
  """A weighted sum of reward functions: `reward = sum_i weight_i * reward_i`.

  If one function cannot score a completion, its reward is nan and so is the sum. A function
  of weight 0 is only logged and does not affect the sum.

  Attributes:
    parts: `(name, function, weight)` of each reward function.
  """

  parts: tuple[tuple[str, RewardFn, float], ...]

  def __post_init__(self):
    if not self.parts:
      raise ValueError("parts is empty; a combined reward needs at least one function")
    names = [name for name, _, _ in self.parts]
    for name, function, weight in self.parts:
      if names.count(name) > 1 or not name or name in ("reward", "accuracy"):
        raise ValueError(
          f"parts has the name {name!r}; names must be unique, not empty, and neither "
          "'reward' nor 'accuracy'"
        )
      if not callable(function):
        raise ValueError(f"{name} is {function!r}; it must be a reward function")
      if not math.isfinite(weight):
        raise ValueError(f"the weight of {name} is {weight}; it must be finite")

  def __call__(
    self, prompt: str, completion: str, ground_truth: str, metadata: Metadata = NO_METADATA
  ) -> dict[str, float]:
    """Scores a completion with every function.

    `ground_truth` is the value that the functions compare with.

    Returns:
      `reward`; each function's unweighted reward under the function's name; every other
      score as `NAME/SCORE`; and `accuracy` of the first function that returns it.
    """
    combined, total = {}, 0.0
    for name, function, weight in self.parts:
      scores = function(prompt, completion, ground_truth, metadata)
      if weight:
        total += weight * scores["reward"]
      combined |= {f"{name}/{key}": x for key, x in scores.items() if key != "reward"}
      combined[name] = scores["reward"]
      if "accuracy" in scores:
        combined.setdefault("accuracy", scores["accuracy"])
    return {"reward": total} | combined


def combine(functions: Mapping[str, RewardFn], weights: Mapping[str, float]) -> Combined:
  """Creates a `Combined` from two mappings, the form that configs use.

  In a config, `entry(combine, functions={"math": entry(Math)}, weights={"math": 1.0})`.
  Then `--config.reward.weights.math=2` sets a weight on the command line.

  Args:
    functions: reward functions, keyed by name.
    weights: weights of the functions, keyed by the same names.

  Returns:
    The combined reward function.

  Raises:
    ValueError: if a function has no weight or a weight has no function.
  """
  if functions.keys() != weights.keys():
    raise ValueError(
      f"weights are given for {sorted(weights)} and functions for {sorted(functions)}; "
      "each function needs one weight"
    )
  # Sorted by name, so the order of keys in a file does not matter.
  return Combined(tuple((name, functions[name], weights[name]) for name in sorted(weights)))
