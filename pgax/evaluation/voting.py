"""Majority vote among the answers of several completions."""

import math
from collections.abc import Hashable, Sequence

from pgax.rewards.answers import clean, exact_number


def majority_at_k(answers: Sequence[str | None], right: Sequence[bool], k: int) -> float:
  """How often the most frequent answer of `k` completions is right.

  The completions are cut, in order, into `n // k` blocks of `k`, and the mean over blocks
  is taken. In a block each completion votes for its answer. Among the most frequent answers
  one is drawn, and among the completions that gave it one: the value is the chance that it
  is right, so neither order nor a draw plays a part in it. Completions of one answer are
  either all right or all wrong, unless the verifier looks at more than the answer. Answers
  are one if they are the same number, or the same text, see `answers.exact_number` and
  `answers.clean`. Source: Wang et al. 2022, arXiv 2203.11171.

  Args:
    answers: of the completions of one problem; None for a completion that has none and
      does not vote. A block without any answer is wrong.
    right: whether each completion is right.
    k: number of completions that vote, from 1 on.

  Returns:
    A number from 0 to 1; nan for fewer than `k` completions.

  Raises:
    ValueError: if `k` is below 1, or there is not one answer for each completion.
  """
  if k < 1:
    raise ValueError(f"k is {k}; it must be at least 1")
  if len(answers) != len(right):
    raise ValueError(f"{len(answers)} answers are given for {len(right)} completions")
  starts = range(0, len(answers) // k * k, k)
  blocks = [_chance(answers[i : i + k], right[i : i + k]) for i in starts]
  return sum(blocks) / len(blocks) if blocks else math.nan


def _chance(answers: Sequence[str | None], right: Sequence[bool]) -> float:
  votes: dict[Hashable, list[bool]] = {}
  for answer, is_right in zip(answers, right, strict=True):
    if answer is not None:
      votes.setdefault(_vote(answer), []).append(bool(is_right))
  most = max(map(len, votes.values()), default=0)
  tied = [sum(x) / most for x in votes.values() if len(x) == most]
  return sum(tied) / len(tied) if tied else 0.0


def _vote(answer: str) -> Hashable:
  """What answers that mean the same have in common."""
  number = exact_number(answer)
  return clean(answer) if number is None else number
