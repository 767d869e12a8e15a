"""Verifies mathematical answers by comparing them as mathematics, not as text."""

import dataclasses
import importlib.util

from pgax.rewards.answers import clean, exact_number, extract_answer
from pgax.rewards.equality import equal
from pgax.types import NO_METADATA, Metadata


def equivalent(gold: str, answer: str, symbolic: bool = True) -> bool:
  """Returns whether an answer equals the right answer.

  Text and numbers are compared exactly, without any library. Other answers are compared by
  math-verify (github.com/huggingface/Math-Verify). Its comparison is not symmetric: the
  kind of the right answer decides how an equation or an inequality is read.

  math-verify's own time limits are off, because `signal.alarm` works on the main thread
  only. `rewards.equality` limits its steps instead, in any thread.

  An answer may be a sentence with one answer in it. One that offers several is wrong, even
  if the right one is among them, unless all of them together are the right answer.

  Args:
    gold: the right answer.
    answer: the answer to verify.
    symbolic: whether to use math-verify.

  Returns:
    Whether the answers are equal.
  """
  if clean(gold) == clean(answer):
    return True
  numbers = exact_number(gold), exact_number(answer)
  # A third is not exactly 0.333333; the library decides whether that is close enough.
  rounded = any(x and "." in text for x, text in zip(numbers, (gold, answer), strict=True))
  if None not in numbers and (numbers[0] == numbers[1] or not rounded or not symbolic):
    return numbers[0] == numbers[1]
  if all(x is not None and _terminates(x.denominator) for x in numbers):
    return False
  return symbolic and equal(gold, answer)


def _terminates(denominator: int) -> bool:
  """Returns whether a fraction with this denominator has finitely many decimals."""
  for prime in (2, 5):
    while denominator % prime == 0:
      denominator //= prime
  return denominator == 1


def require_math_verify(symbolic: bool) -> None:
  """Checks that math-verify is installed if it is needed.

  Otherwise the first completion that needs it would fail, late in a run.

  Args:
    symbolic: whether math-verify is needed.

  Raises:
    ValueError: if math-verify is needed and not installed.
  """
  if symbolic and importlib.util.find_spec("math_verify") is None:
    raise ValueError(
      "symbolic is True, which needs math-verify: pip install 'pgax[math]', or set "
      "symbolic to False to compare numbers and text only"
    )


@dataclasses.dataclass(frozen=True)
class Math:
  r"""Scores an answer in `<answer>`, `\boxed{}` or `\fbox{}`, after `####`, or unmarked.

  Attributes:
    plain: whether the last number of a completion without a marked answer is its answer.
    symbolic: whether math-verify compares answers that differ as text and as numbers; needs
      the extra `math`. Answers that take too many steps to compare, such as
      `10^{10^{10}}`, are wrong.
  """

  plain: bool = True
  symbolic: bool = True

  def __post_init__(self):
    require_math_verify(self.symbolic)

  def __call__(
    self, prompt: str, completion: str, ground_truth: str, metadata: Metadata = NO_METADATA
  ) -> dict[str, float]:
    """Scores the answer of a completion.

    `ground_truth` is the right answer, or a reference solution that marks it.

    Returns:
      `reward` and `accuracy`, 1.0 if the answer is right and 0.0 otherwise; and `format`,
      1.0 if the completion has an answer and 0.0 otherwise.

    Raises:
      ValueError: if the ground truth is empty.
    """
    del prompt, metadata
    gold = extract_answer(ground_truth, plain=False) or ground_truth.strip()
    if not gold:
      raise ValueError("ground_truth is ''; it must be an answer")
    answer = extract_answer(completion, self.plain)
    correct = float(answer is not None and equivalent(gold, answer, self.symbolic))
    return {"reward": correct, "accuracy": correct, "format": float(answer is not None)}
