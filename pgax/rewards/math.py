"""Verifies a final answer: is the number after `####` the right one?"""

import re
from decimal import Decimal

from pgax.rewards.numbers import INTEGER, ascii_minus
from pgax.types import NO_METADATA, Metadata

MARKER = "####"
# The number must be all that is left of the line: "12 or 13" is not an answer.
_NUMBER = re.compile(rf"[-+]?\$?(?:{INTEGER}(?:\.\d+)?|\.\d+)\.?")


def parse_answer(text: str) -> Decimal | None:
  """Parses the number on the line of the last `####`.

  Thousands separators, a dollar sign and a final period are ignored, since GSM8K has them.
  With any other text on that line, it is not an answer.

  Args:
    text: a completion or a reference solution.

  Returns:
    The exact decimal number, or None if there is none.
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
  prompt: str, completion: str, ground_truth: str, metadata: Metadata = NO_METADATA
) -> dict[str, float]:
  """Compares the number after the last `####` with the ground truth, exactly.

  `ground_truth` is a number as text, such as `1,234` or `-5`.

  Returns:
    `reward` and `accuracy`, 1.0 if the numbers are equal and 0.0 otherwise; and `format`,
    1.0 if the completion has a number after `####` and 0.0 otherwise.

  Raises:
    ValueError: if the ground truth is not a number.
  """
  del prompt, metadata
  truth = _number(ground_truth)
  if truth is None:
    raise ValueError(f"ground_truth is {ground_truth!r}; it must be a number")
  answer = parse_answer(completion)
  correct = float(answer is not None and answer == truth)
  return {"reward": correct, "accuracy": correct, "format": float(answer is not None)}
