"""Tasks: problems together with how they are judged, one file per task."""

from pgax.tasks.addition import addition, addition_preferences, addition_steps
from pgax.tasks.countdown import Countdown, countdown
from pgax.tasks.gsm8k import GSM8KFields, gsm8k
from pgax.tasks.reasoning_gym import ReasoningGym, reasoning_gym
from pgax.tasks.small_sums import small_sums

__all__ = [
  "Countdown",
  "GSM8KFields",
  "ReasoningGym",
  "addition",
  "addition_preferences",
  "addition_steps",
  "countdown",
  "gsm8k",
  "reasoning_gym",
  "small_sums",
]
