"""Rewards: functions of prompt, completion, ground truth and metadata."""

from pgax.rewards.code import Code
from pgax.rewards.combine import Combined, combine
from pgax.rewards.math import final_answer
from pgax.rewards.r1_zero import R1Zero
from pgax.rewards.steps import addition_steps
from pgax.rewards.structured import JSONSchema
from pgax.rewards.style import LengthTarget, RepetitionPenalty
from pgax.rewards.symbolic import Math
from pgax.rewards.text import ExactMatch, NumericMatch, Regex

__all__ = [
  "Code",
  "Combined",
  "ExactMatch",
  "JSONSchema",
  "LengthTarget",
  "Math",
  "NumericMatch",
  "R1Zero",
  "Regex",
  "RepetitionPenalty",
  "addition_steps",
  "combine",
  "final_answer",
]
