"""Verifiers of text: exact, by regular expression, and as a number."""

import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Any

from pgax.rewards.answers import exact_number, extract_answer
from pgax.rewards.numbers import last_number
from pgax.types import NO_METADATA


def _told(right: bool) -> dict[str, float]:
  return {"reward": float(right), "accuracy": float(right)}


@dataclasses.dataclass(frozen=True)
class ExactMatch:
  """Scores 1.0 a completion that is the ground truth, but for white space around it.

  Attributes:
    ignore_case: whether upper and lower case are the same.
    extract: whether to compare the marked answer, as `answers.extract_answer` finds it,
      and not the whole completion.
  """

  ignore_case: bool = False
  extract: bool = False

  def __call__(
    self,
    prompt: str,
    completion: str,
    ground_truth: str,
    metadata: Mapping[str, Any] = NO_METADATA,
  ) -> dict[str, float]:
    """Scores a completion; see the class, and `RewardFn`."""
    del prompt, metadata
    text = extract_answer(completion, plain=False) if self.extract else completion
    pair = [x.strip() for x in (text or "", ground_truth)]
    if self.ignore_case:
      pair = [x.casefold() for x in pair]
    return _told(pair[0] == pair[1])


@dataclasses.dataclass(frozen=True)
class Regex:
  """Scores 1.0 a completion that a regular expression matches.

  An expression can take exponential time; the deadline of the pool is what limits it.

  Attributes:
    pattern: the expression; empty to take each problem's ground truth.
    whole: whether it must match the whole completion, and not a part of it.
  """

  pattern: str = ""
  whole: bool = False

  def __post_init__(self):
    _compiled(self.pattern)

  def __call__(
    self,
    prompt: str,
    completion: str,
    ground_truth: str,
    metadata: Mapping[str, Any] = NO_METADATA,
  ) -> dict[str, float]:
    """Scores a completion; see the class, and `RewardFn`."""
    del prompt, metadata
    pattern = _compiled(self.pattern or ground_truth)
    match = pattern.fullmatch if self.whole else pattern.search
    return _told(match(completion) is not None)


def _compiled(pattern: str) -> re.Pattern:
  try:
    return re.compile(pattern)
  except re.error as error:
    raise ValueError(
      f"pattern is {pattern!r}; it must be a regular expression: {error}"
    ) from None


@dataclasses.dataclass(frozen=True)
class NumericMatch:
  """Scores 1.0 an answer `x` near the number `t`: `|x - t| <= max(relative |t|, absolute)`.

  Attributes:
    relative: tolerance as a fraction of the ground truth.
    absolute: tolerance in the units of the ground truth.
  """

  relative: float = 1e-6
  absolute: float = 0.0

  def __post_init__(self):
    for name in ("relative", "absolute"):
      value = vars(self)[name]
      if not 0 <= value < math.inf:
        raise ValueError(f"{name} is {value}; it must be at least 0, and finite")

  def __call__(
    self,
    prompt: str,
    completion: str,
    ground_truth: str,
    metadata: Mapping[str, Any] = NO_METADATA,
  ) -> dict[str, float]:
    """Scores the marked answer of a completion, or its last number.

    Args:
      prompt: not looked at.
      completion: the text to score.
      ground_truth: a number, such as `1,234`, `2/3` or `6.02e23`.
      metadata: not looked at.

    Returns:
      `reward` and `accuracy`, 1.0 or 0.0, and `format`, 1.0 if there is a number.

    Raises:
      ValueError: if the ground truth is not a number.
    """
    del prompt, metadata
    truth = _number(ground_truth)
    if truth is None:
      raise ValueError(f"ground truth is {ground_truth!r}; it must be a finite number")
    marked = extract_answer(completion, plain=False)
    answer = _number(marked or completion)
    # In an answer that is marked there may be words around a number, but no other number.
    if answer is None and (marked is None or len(_DIGITS.findall(marked)) == 1):
      answer = _number(last_number(marked or completion, units=True) or "")
    allowed = max(self.relative * abs(truth), self.absolute)
    near = answer is not None and abs(answer - truth) <= allowed
    return _told(near) | {"format": float(answer is not None)}


_DIGITS = re.compile(r"\d+(?:[.,]\d+)*(?:/\d+)?")


def _number(text: str) -> float | None:
  exact = exact_number(text)
  try:
    return None if exact is None else float(exact)
  except OverflowError:
    return None
