"""Several reward functions as one: a weighted sum, with the parts told apart."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from pgax.types import NO_METADATA, RewardFn


@dataclasses.dataclass(frozen=True)
class Combined:
  """A weighted sum of reward functions: `reward = sum_i weight_i * reward_i`.

  A completion that one of them cannot score cannot be scored; one of weight 0 is only
  looked at, and does not have this say.

  Attributes:
    parts: `(name, function, weight)` of each function; a weight is in units of the whole
      reward for each unit of the function's own.
  """

  parts: tuple[tuple[str, RewardFn, float], ...]

  def __post_init__(self):
    if not self.parts:
      raise ValueError("parts is empty; a combined reward needs a function at least")
    names = [name for name, _, _ in self.parts]
    for name, function, weight in self.parts:
      if names.count(name) > 1 or not name or name in ("reward", "accuracy"):
        raise ValueError(
          f"parts has the name {name!r}; names are not empty, differ from one another and "
          "are neither 'reward' nor 'accuracy'"
        )
      if not callable(function):
        raise ValueError(f"{name} is {function!r}; it must be a reward function")
      if not math.isfinite(weight):
        raise ValueError(f"the weight of {name} is {weight}; it must be finite")

  def __call__(
    self,
    prompt: str,
    completion: str,
    ground_truth: str,
    metadata: Mapping[str, Any] = NO_METADATA,
  ) -> dict[str, float]:
    """Scores a completion by all of the functions.

    Args:
      prompt: as for a `RewardFn`.
      completion: as for a `RewardFn`.
      ground_truth: as for a `RewardFn`.
      metadata: as for a `RewardFn`.

    Returns:
      `reward`; every function's reward before its weight, by the function's name; every
      other score as `NAME/SCORE`; and, of the first function that tells one, `accuracy`.
    """
    scores, total = {}, 0.0
    for name, function, weight in self.parts:
      told = function(prompt, completion, ground_truth, metadata)
      if weight:
        total += weight * told["reward"]
      scores |= {f"{name}/{key}": x for key, x in told.items() if key != "reward"}
      scores[name] = told["reward"]
      if "accuracy" in told:
        scores.setdefault("accuracy", told["accuracy"])
    return {"reward": total} | scores


def combine(functions: Mapping[str, RewardFn], weights: Mapping[str, float]) -> Combined:
  """A `Combined` from two mappings, as a config has them.

  In a config, `entry(combine, functions={"math": entry(Math)}, weights={"math": 1.0})`;
  then `--config.reward.weights.math=2` sets a weight on the command line.

  Args:
    functions: reward functions by name.
    weights: theirs, by the same names; see `Combined`.

  Returns:
    The combined reward function.

  Raises:
    ValueError: if a name has no function or no weight.
  """
  if functions.keys() != weights.keys():
    raise ValueError(
      f"weights are given for {sorted(weights)} and functions for {sorted(functions)}; "
      "each function needs one weight"
    )
  # By name, so that the order in which a file keeps them makes no difference.
  return Combined(tuple((name, functions[name], weights[name]) for name in sorted(weights)))
