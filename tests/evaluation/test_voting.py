"""The majority vote: winners, ties, and independence of order."""

import itertools
import math
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgax.evaluation.voting import majority_at_k
from pgax.rewards.answers import marked_answer


@pytest.mark.parametrize(
  ("answers", "right", "k", "expected"),
  [
    ("aab", "110", 3, 1.0),
    ("abb", "100", 3, 0.0),
    ("ab", "10", 2, 0.5),  # a tie, drawn by lot
    ("abc", "100", 3, 1 / 3),
    ("aabbc", "11000", 5, 0.5),
    ("-a", "01", 2, 1.0),  # a completion without an answer does not vote
    ("--a", "110", 3, 0.0),  # even if the verifier accepted completions without an answer
    ("--", "11", 2, 0.0),
    ("aabb", "1100", 2, 0.5),  # two blocks, one right and one wrong
    ("aabbc", "11000", 2, 0.5),  # the remainder is in no block
    ("aa", "10", 2, 0.5),  # one answer in two forms, of which the verifier accepts one
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


def _expected_by_lot(answers, right):
  """Averages over all draws of a most frequent answer and of a completion with it."""
  counts = Counter(x for x in answers if x is not None)
  tied = [x for x in counts if counts[x] == max(counts.values())]
  drawn = [[r for a, r in zip(answers, right, strict=True) if a == x] for x in tied]
  lots = list(itertools.product(*drawn))
  return sum(sum(lot) / len(lot) for lot in lots) / len(lots) if tied else 0.0


@given(
  st.lists(st.tuples(st.sampled_from(["1", "2", "3", None]), st.booleans()), max_size=6),
  st.randoms(use_true_random=False),
)
def test_the_value_is_the_expectation_over_draws_in_any_order(votes, rng: random.Random):
  answers, right = [x for x, _ in votes], [x for _, x in votes]
  if not votes:
    assert math.isnan(majority_at_k(answers, right, 1))
    return
  value = majority_at_k(answers, right, len(votes))
  assert value == pytest.approx(_expected_by_lot(answers, right))
  rng.shuffle(votes)
  again = majority_at_k([x for x, _ in votes], [x for _, x in votes], len(votes))
  assert again == pytest.approx(value)
  # With k = 1, a completion is right if it has an answer and the answer is right.
  single = [r and a is not None for a, r in votes]
  value = majority_at_k([x for x, _ in votes], [x for _, x in votes], 1)
  assert value == pytest.approx(sum(single) / len(single))


def test_too_few_completions_and_bad_arguments():
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
def test_marked_answer(text, answer):
  assert marked_answer(text) == answer
