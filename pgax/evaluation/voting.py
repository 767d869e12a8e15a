"""Majority vote among the answers of several completions."""

import math
from collections.abc import Hashable, Sequence

from pgax.rewards.answers import clean, exact_number


def majority_at_k(answers: Sequence[str | None], correct: Sequence[bool], k: int) -> float:
  """Computes how often the most frequent answer of `k` completions is right.

  The completions are divided, in order, into `n // k` blocks of `k`, and the result is the
  mean over blocks. In a block, each completion votes for its answer. The value of a block
  is the probability that a random completion with a random one of the most frequent answers
  is right. It is computed exactly, so neither order nor random draws affect it. Completions
  with one answer are all right or all wrong, unless the verifier checks more than the
  answer. Answers are equal if they are the same number or the same text; see
  `answers.exact_number` and `answers.clean`. Source: Wang et al. 2022, arXiv 2203.11171.

  Args:
    answers: answer of each completion of one problem; None for a completion without an
      answer, which does not vote. A block without any answer is wrong.
    correct: whether each completion is right.
    k: number of completions that vote, at least 1.

  Returns:
    A number from 0 to 1; nan if there are fewer than `k` completions.

  Raises:
    ValueError: if `k` is below 1, or the numbers of answers and completions differ.
  """
  if k < 1:
    raise ValueError(f"k is {k}; it must be at least 1")
  if len(answers) != len(correct):
    raise ValueError(f"{len(answers)} answers are given for {len(correct)} completions")
  starts = range(0, len(answers) // k * k, k)
  blocks = [_probability(answers[i : i + k], correct[i : i + k]) for i in starts]
  return sum(blocks) / len(blocks) if blocks else math.nan


def _probability(answers: Sequence[str | None], correct: Sequence[bool]) -> float:
  votes: dict[Hashable, list[bool]] = {}
  for answer, is_correct in zip(answers, correct, strict=True):
    if answer is not None:
      votes.setdefault(_vote(answer), []).append(bool(is_correct))
  max_votes = max(map(len, votes.values()), default=0)
  tied = [sum(x) / max_votes for x in votes.values() if len(x) == max_votes]
  return sum(tied) / len(tied) if tied else 0.0


def _vote(answer: str) -> Hashable:
  """Returns a value that is equal for answers with the same meaning."""
  number = exact_number(answer)
  return clean(answer) if number is None else number
