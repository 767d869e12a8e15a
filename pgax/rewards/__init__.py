"""Rewards: functions of prompt, completion, ground truth and metadata."""

from pgax.rewards.code import Code
from pgax.rewards.combine import Combined, combine
from pgax.tasks.countdown import Countdown
from pgax.rewards.math import final_answer
from pgax.rewards.r1_zero import R1Zero
from pgax.tasks.reasoning_gym import ReasoningGym
from pgax.tasks.addition import addition_steps
from pgax.rewards.structured import JSONSchema
from pgax.rewards.style import LengthTarget, RepetitionPenalty
from pgax.rewards.symbolic import Math
from pgax.rewards.by_task import ByTask, by_task
from pgax.rewards.text import ExactMatch, NumericMatch, Regex

__all__ = [
  "ByTask",
  "Code",
  "Combined",
  "Countdown",
  "ExactMatch",
  "JSONSchema",
  "LengthTarget",
  "Math",
  "NumericMatch",
  "R1Zero",
  "ReasoningGym",
  "Regex",
  "RepetitionPenalty",
  "addition_steps",
  "by_task",
  "combine",
  "final_answer",
]
