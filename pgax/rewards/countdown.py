"""The verifier of countdown: an expression of given numbers that has a given value."""

import dataclasses
import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

from pgax.rewards.answers import tagged_answer
from pgax.rewards.expressions import parse_expression
from pgax.types import NO_METADATA


@dataclasses.dataclass(frozen=True)
class Countdown:
  """Scores whether an expression of the given numbers has the value that is asked for.

  The expression is what stands in the last `<answer>...</answer>`, or else behind the last
  `####`, or else the whole completion; it is read by `parse_expression` and computed in
  fractions. Source of the rules: TinyZero (Pan et al. 2025).

  Attributes:
    use_all: whether each number must be used exactly once, as in TinyZero; False for at
      most once, as on television.
    format_score: reward of an expression of the right numbers with another value, in units
      of the whole reward; TinyZero has 0.1.
  """

  use_all: bool = True
  format_score: float = 0.0

  def __post_init__(self):
    if not math.isfinite(self.format_score):
      raise ValueError(f"format_score is {self.format_score}; it must be finite")

  def __call__(
    self,
    prompt: str,
    completion: str,
    ground_truth: str,
    metadata: Mapping[str, Any] = NO_METADATA,
  ) -> dict[str, float]:
    """Scores a completion.

    Args:
      prompt: not looked at.
      completion: the text to score.
      ground_truth: the value to reach, a whole number as text.
      metadata: `numbers`, those that are given.

    Returns:
      `reward`; `accuracy`, 1.0 if the expression has that value; and `format`, 1.0 if it is
      an expression of the given numbers.

    Raises:
      ValueError: if the ground truth is not a whole number or no numbers are given.
    """
    del prompt
    if "numbers" not in metadata:
      raise ValueError(f"the metadata has the keys {sorted(metadata)} and no 'numbers'")
    target, given = int(ground_truth), Counter(map(int, metadata["numbers"]))
    found = parse_expression(tagged_answer(completion))
    used = Counter(found.numbers) if found else None
    formatted = used is not None and (used == given if self.use_all else used <= given)
    right = formatted and found.value == target
    return {
      "reward": 1.0 if right else self.format_score * formatted,
      "accuracy": float(right),
      "format": float(formatted),
    }
