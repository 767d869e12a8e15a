"""Verifiers of a final answer: is the number after `####` the right one?"""

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from pgax.rewards.numbers import WHOLE, ascii_minus
from pgax.types import NO_METADATA

MARKER = "####"
# The rest of the line is the number, or there is no answer: "12 or 13" is not one.
_NUMBER = re.compile(rf"[-+]?\$?(?:{WHOLE}(?:\.\d+)?|\.\d+)\.?")


def parse_answer(text: str) -> Decimal | None:
  """The number on the line of the last `####`, or None if there is none.

  Thousands separators, a dollar sign and a full stop are read over, as GSM8K has them;
  anything else on that line makes it no answer.

  Args:
    text: a completion or a reference solution.

  Returns:
    The exact decimal number.
  """
  _, marker, tail = text.rpartition(MARKER)
  if not marker:
    return None
  return _number(tail.partition("\n")[0])


def _number(text: str) -> Decimal | None:
  text = ascii_minus(text).strip()
  if not _NUMBER.fullmatch(text):
    return None
  return Decimal(text.rstrip(".").replace(",", "").replace("$", ""))


def final_answer(
  prompt: str,
  completion: str,
  ground_truth: str,
  metadata: Mapping[str, Any] = NO_METADATA,
) -> dict[str, float]:
  """Scores the number after the last `####` against the ground truth, exactly.

  Args:
    prompt: not looked at.
    completion: the text to score.
    ground_truth: a number as text, such as `1,234` or `-5`.
    metadata: not looked at.

  Returns:
    `reward` and `accuracy`, 1.0 if the numbers are equal and 0.0 otherwise, and `format`,
    1.0 if there is a number to compare.

  Raises:
    ValueError: if the ground truth is not a number.
  """
  del prompt, metadata
  truth = _number(ground_truth)
  if truth is None:
    raise ValueError(f"ground truth is {ground_truth!r}; it must be a number")
  answer = parse_answer(completion)
  correct = float(answer is not None and answer == truth)
  return {"reward": correct, "accuracy": correct, "format": float(answer is not None)}
