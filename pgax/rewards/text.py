"""Verifies text: exactly, by a regular expression, or as a number."""

import dataclasses
import re

from pgax.errors import check_at_least
from pgax.rewards.answers import exact_number, extract_answer
from pgax.rewards.numbers import last_number
from pgax.types import NO_METADATA, Metadata


def _scores(correct: bool) -> dict[str, float]:
  return {"reward": float(correct), "accuracy": float(correct)}


@dataclasses.dataclass(frozen=True)
class ExactMatch:
  """Scores whether a completion equals the ground truth, up to surrounding white space.

  Attributes:
    ignore_case: whether case is ignored.
    extract: whether to compare the marked answer, as `answers.extract_answer` returns it,
      instead of the entire completion.
  """

  ignore_case: bool = False
  extract: bool = False

  def __call__(
    self, prompt: str, completion: str, ground_truth: str, metadata: Metadata = NO_METADATA
  ) -> dict[str, float]:
    """Scores a completion.

    `ground_truth` is the expected text.

    Returns:
      `reward` and `accuracy`, 1.0 if the completion matches and 0.0 otherwise.
    """
    del prompt, metadata
    text = extract_answer(completion, plain=False) if self.extract else completion
    pair = [x.strip() for x in (text or "", ground_truth)]
    if self.ignore_case:
      pair = [x.casefold() for x in pair]
    return _scores(pair[0] == pair[1])


@dataclasses.dataclass(frozen=True)
class Regex:
  """Scores whether a regular expression matches a completion.

  A regular expression can take exponential time, which only the timeout of a pool limits.

  Attributes:
    pattern: regular expression; if it is empty, each problem's ground truth is one.
    full_match: whether the pattern must match the entire completion.
  """

  pattern: str = ""
  full_match: bool = False

  def __post_init__(self):
    _compiled(self.pattern)

  def __call__(
    self, prompt: str, completion: str, ground_truth: str, metadata: Metadata = NO_METADATA
  ) -> dict[str, float]:
    """Scores a completion.

    `ground_truth` is a regular expression; not used if `pattern` is set.

    Returns:
      `reward` and `accuracy`, 1.0 if the completion matches and 0.0 otherwise.
    """
    del prompt, metadata
    pattern = _compiled(self.pattern or ground_truth)
    match = pattern.fullmatch if self.full_match else pattern.search
    return _scores(match(completion) is not None)


def _compiled(pattern: str) -> re.Pattern:
  try:
    return re.compile(pattern)
  except re.error as error:
    raise ValueError(
      f"pattern is {pattern!r}; it must be a regular expression: {error}"
    ) from None


@dataclasses.dataclass(frozen=True)
class NumericMatch:
  """Scores whether an answer `x` is near `t`: `|x - t| <= max(relative |t|, absolute)`.

  Attributes:
    relative: tolerance as a fraction of the ground truth.
    absolute: tolerance in the units of the ground truth.
  """

  relative: float = 1e-6
  absolute: float = 0.0

  def __post_init__(self):
    check_at_least(self, 0, "relative", "absolute")

  def __call__(
    self, prompt: str, completion: str, ground_truth: str, metadata: Metadata = NO_METADATA
  ) -> dict[str, float]:
    """Scores the marked answer of a completion, or its last number.

    `ground_truth` is a number, such as `1,234`, `2/3` or `6.02e23`.

    Returns:
      `reward` and `accuracy`, 1.0 if the answer is near and 0.0 otherwise; and `format`,
      1.0 if the completion has a number and 0.0 otherwise.

    Raises:
      ValueError: if the ground truth is not a number.
    """
    del prompt, metadata
    truth = _number(ground_truth)
    if truth is None:
      raise ValueError(f"ground_truth is {ground_truth!r}; it must be a finite number")
    marked = extract_answer(completion, plain=False)
    answer = _number(marked or completion)
    # A marked answer may have words around its number, but no other number.
    if answer is None and (marked is None or len(_DIGITS.findall(marked)) == 1):
      answer = _number(last_number(marked or completion, units=True) or "")
    tolerance = max(self.relative * abs(truth), self.absolute)
    near = answer is not None and abs(answer - truth) <= tolerance
    return _scores(near) | {"format": float(answer is not None)}


_DIGITS = re.compile(r"\d+(?:[.,]\d+)*(?:/\d+)?")


def _number(text: str) -> float | None:
  exact = exact_number(text)
  try:
    return None if exact is None else float(exact)
  except OverflowError:
    return None
