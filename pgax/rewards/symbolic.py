"""Verifier of mathematical answers: equal as mathematics, not as text."""

import dataclasses
import importlib.util
import logging
from collections.abc import Mapping
from typing import Any

from pgax.rewards.answers import clean, exact_number, extract_answer
from pgax.types import NO_METADATA


def equivalent(gold: str, answer: str, symbolic: bool = True) -> bool:
  """Whether an answer is the gold one.

  Equal text is equal, and numbers are compared exactly; that needs no library. Anything
  else is left to math-verify (github.com/huggingface/Math-Verify), gold first: an answer
  that is an equation or an inequality is judged by what the gold one is.

  math-verify's own time limits are `signal.alarm`, which works on a main thread only; they
  are off, and what limits it is the deadline of the pool (`rewards.pool`).

  Args:
    gold: the right answer.
    answer: the one to judge.
    symbolic: whether to go on to math-verify.

  Returns:
    True or False.
  """
  if clean(gold) == clean(answer):
    return True
  numbers = exact_number(gold), exact_number(answer)
  # A third is not 0.333333 exactly; whether that is near enough is left to the library.
  rounded = any(x and "." in text for x, text in zip(numbers, (gold, answer), strict=True))
  if None not in numbers and (numbers[0] == numbers[1] or not rounded or not symbolic):
    return numbers[0] == numbers[1]
  if all(x is not None and _terminates(x.denominator) for x in numbers):
    return False
  return symbolic and _balanced(clean(answer)) and _verify(gold, answer)


def _terminates(denominator: int) -> bool:
  """Whether a fraction with this denominator has finitely many decimals."""
  for prime in (2, 5):
    while denominator % prime == 0:
      denominator //= prime
  return denominator == 1


def _balanced(text: str) -> bool:
  """Whether the braces match: then the text can't close the box that it is put into."""
  depth = 0
  for index, character in enumerate(text):
    if index and text[index - 1] == "\\":
      continue
    depth += {"{": 1, "}": -1}.get(character, 0)
    if depth < 0:
      return False
  return not depth


def _verify(gold: str, answer: str) -> bool:
  import math_verify  # an extra, and slow to load

  # It warns in every process that its time limits are off.
  logging.getLogger("math_verify").setLevel(logging.ERROR)

  def parse(text: str) -> list:
    # In a box, it is read as one LaTeX answer and not searched for another.
    return math_verify.parse(f"\\boxed{{{clean(text)}}}", parsing_timeout=None)

  return math_verify.verify(parse(gold), parse(answer), timeout_seconds=None)


def require_math_verify(symbolic: bool) -> None:
  """Refuses at once what would otherwise fail at the first odd completion.

  Raises:
    ValueError: if math-verify is asked for and not installed.
  """
  if symbolic and importlib.util.find_spec("math_verify") is None:
    raise ValueError(
      "symbolic is True, which needs math-verify: pip install 'pgax[math]', or set "
      "symbolic to False to compare numbers and text only"
    )


@dataclasses.dataclass(frozen=True)
class Math:
  r"""Scores an answer: in `<answer>`, `\boxed{}` or `\fbox{}`, behind `####`, or a number.

  Attributes:
    plain: whether the last plain number of a completion is its answer where it marks none.
    symbolic: whether to compare by math-verify what is not the same text or number; needs
      the extra `math`. It may compute for hours on what a model writes, say
      `10^{10^{10}}`; only the deadline of a pool (`scoring.workers`) ends that.
  """

  plain: bool = True
  symbolic: bool = True

  def __post_init__(self):
    require_math_verify(self.symbolic)

  def __call__(
    self,
    prompt: str,
    completion: str,
    ground_truth: str,
    metadata: Mapping[str, Any] = NO_METADATA,
  ) -> dict[str, float]:
    """Scores the answer of a completion.

    Args:
      prompt: not looked at.
      completion: the text to score.
      ground_truth: the right answer, or a reference solution that marks it.
      metadata: not looked at.

    Returns:
      `reward` and `accuracy`, 1.0 if the answer is right and 0.0 otherwise, and `format`,
      1.0 if there is an answer.

    Raises:
      ValueError: if the ground truth is empty.
    """
    del prompt, metadata
    gold = extract_answer(ground_truth, plain=False) or ground_truth.strip()
    if not gold:
      raise ValueError("ground truth is ''; it must be an answer")
    answer = extract_answer(completion, self.plain)
    right = float(answer is not None and equivalent(gold, answer, self.symbolic))
    return {"reward": right, "accuracy": right, "format": float(answer is not None)}
