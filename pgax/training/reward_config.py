"""The setting of a learned reward model; see `config`, which has all the others."""

import dataclasses
import math


@dataclasses.dataclass(frozen=True)
class RewardModelConfig:
  """A learned reward model beside the reward function.

  `reward = function_weight * function + weight * model`. Evaluations are by the reward
  function alone.

  Attributes:
    path: directory of a sequence scorer, as transformers saves it
      (`*ForSequenceClassification` with one label) or `experiments.train_reward` exports
      it; empty for none. It reads the policy's tokens.
    weight: of its score; 0 only looks at it.
    function_weight: of the reward function's; 0 only looks at it. Without a path the
      reward is the function's.
    cut_reward: in the place of the model's score of a completion that was cut at the limit,
      which the model does not see.
  """

  path: str = ""
  weight: float = 1.0
  function_weight: float = 1.0
  cut_reward: float = -1.0

  def __post_init__(self):
    for name in ("weight", "function_weight", "cut_reward"):
      if not math.isfinite(vars(self)[name]):
        raise ValueError(f"reward_model.{name} is {vars(self)[name]}; it must be finite")
    if self.path and not (self.weight or self.function_weight):
      raise ValueError(
        "reward_model.weight and reward_model.function_weight are 0; nothing is rewarded"
      )
