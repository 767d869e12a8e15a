"""A reward model of three-digit additions: whether a solution carries.

It is the default of `experiments.train_reward`, not a config of `experiments.train`.

Command:
  python -m experiments.train_reward --workdir=runs/reward
Time: 200 steps in half a minute of CPU on two server cores, compilation included.
Expect: 100 % of 512 held-out pairs ranked correctly from step 50 on (seed 0).

The exported model is added to the reward of a run by
  python -m experiments.train --workdir=runs/learned \
    --config.reward_model.path=runs/reward/export
With `--config.reward_model.function_weight=0` it is the only reward, and the policy learns to
exploit it: accuracy rises from 30.5 % to 93.8 % in 8 steps and falls to 2.7 % after 40
(seed 0), while the model's score still rises. The model has learned to prefer carries, not to
add.
"""

from pgax.tasks import addition_preferences
from pgax.training import PreferenceConfig, entry


def get_config() -> PreferenceConfig:
  """Makes the config."""
  return PreferenceConfig(
    name="preferences",
    data=entry(addition_preferences),
    max_prompt_tokens=9,
    max_completion_tokens=40,
  )
