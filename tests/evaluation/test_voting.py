"""The majority vote: whom it elects, what ties give, and that order plays no part."""

import itertools
import math
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgax.rewards.answers import marked_answer
from pgax.evaluation.voting import majority_at_k


@pytest.mark.parametrize(
  ("answers", "right", "k", "expected"),
  [
    ("aab", "110", 3, 1.0),
    ("abb", "100", 3, 0.0),
    ("ab", "10", 2, 0.5),  # a tie: drawn by lot
    ("abc", "100", 3, 1 / 3),
    ("aabbc", "11000", 5, 0.5),
    ("-a", "01", 2, 1.0),  # no answer is no vote
    ("--a", "110", 3, 0.0),  # even of what a verifier took
    ("--", "11", 2, 0.0),
    ("aabb", "1100", 2, 0.5),  # two blocks: one right, one wrong
    ("aabbc", "11000", 2, 0.5),  # what is left over is in no block
    ("aa", "10", 2, 0.5),  # one answer, of which the verifier liked one form
    ("a", "1", 1, 1.0),
  ],
)
def test_votes_are_counted(answers, right, k, expected):
  given = [None if x == "-" else x for x in answers]
  assert majority_at_k(given, [x == "1" for x in right], k) == pytest.approx(expected)


def test_answers_that_mean_the_same_vote_together():
  same = ["1,000", "1000.0", "$1000$", "2000/2", "\\frac{2000}{2}"]
  others = ["7", "8", "9", "10"]
  right = [True] * 5 + [False] * 4
  assert majority_at_k(same + others, right, 9) == 1.0
  texts = ["\\(x+1\\)", "x+1.", " x+1 ", "x+2", "x+2", "2"]
  assert majority_at_k(texts, [True] * 3 + [False] * 3, 6) == 1.0
  assert majority_at_k(["1/3", "0.333333", "0.333333"], [True, False, False], 3) == 0.0


def _by_lot(answers, right):
  """Mean over all draws: of one of the most frequent answers, then of who gave it."""
  counts = Counter(x for x in answers if x is not None)
  tied = [x for x in counts if counts[x] == max(counts.values())]
  drawn = [[r for a, r in zip(answers, right, strict=True) if a == x] for x in tied]
  lots = list(itertools.product(*drawn))
  return sum(sum(lot) / len(lot) for lot in lots) / len(lots) if tied else 0.0


@given(
  st.lists(st.tuples(st.sampled_from(["1", "2", "3", None]), st.booleans()), max_size=6),
  st.randoms(use_true_random=False),
)
def test_is_the_expectation_over_lots_in_any_order(votes, chance: random.Random):
  answers, right = [x for x, _ in votes], [x for _, x in votes]
  if not votes:
    assert math.isnan(majority_at_k(answers, right, 1))
    return
  found = majority_at_k(answers, right, len(votes))
  assert found == pytest.approx(_by_lot(answers, right))
  chance.shuffle(votes)
  again = majority_at_k([x for x, _ in votes], [x for _, x in votes], len(votes))
  assert again == pytest.approx(found)
  # Of one completion it is whether it is right, if it has an answer.
  alone = [r and a is not None for a, r in votes]
  one = majority_at_k([x for x, _ in votes], [x for _, x in votes], 1)
  assert one == pytest.approx(sum(alone) / len(alone))


def test_too_few_completions_and_bad_calls():
  assert math.isnan(majority_at_k(["1"], [True], 2))
  with pytest.raises(ValueError, match="k is 0; it must be at least 1"):
    majority_at_k(["1"], [True], 0)
  with pytest.raises(ValueError, match="1 answers are given for 2 completions"):
    majority_at_k(["1"], [True, False], 1)


@pytest.mark.parametrize(
  ("text", "answer"),
  [
    ("1+1 #### 2\nmore", "2"),
    ("<answer> 4 </answer> 5", "4"),
    ("so \\boxed{3}", "3"),
    (" olleh ", "olleh"),
    ("it is 5", "it is 5"),
    ("<answer></answer> 5", None),
    ("####", None),
    (" \n", None),
  ],
)
def test_the_answer_of_a_completion(text, answer):
  assert marked_answer(text) == answer
