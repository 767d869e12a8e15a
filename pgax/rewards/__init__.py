"""Reward functions: prompt, completion, ground truth and metadata to named scores."""

from pgax.rewards.by_task import ByTask, by_task
from pgax.rewards.code import Code
from pgax.rewards.combine import Combined, combine
from pgax.rewards.math import final_answer
from pgax.rewards.r1_zero import R1Zero
from pgax.rewards.structured import JSONSchema
from pgax.rewards.style import LengthTarget, RepetitionPenalty
from pgax.rewards.symbolic import Math
from pgax.rewards.text import ExactMatch, NumericMatch, Regex

__all__ = [
  "ByTask",
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
  "by_task",
  "combine",
  "final_answer",
]
