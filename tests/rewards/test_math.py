"""The verifier of final answers: answers, and text that only looks like one."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgax.rewards import final_answer
from pgax.rewards.math import parse_answer


@pytest.mark.parametrize(
  ("text", "answer"),
  [
    ("3+4=7 #### 7", "7"),
    ("#### 1,234", "1234"),
    ("#### $5", "5"),
    ("#### -3.50", "-3.5"),
    ("####12.", "12"),
    ("#### .5", "0.5"),
    ("#### 1 \n and more", "1"),
    ("#### 1 #### 2", "2"),
    ("#### \u22125", "-5"),
    ("#### 1,2", None),
    ("#### 1,2345", None),
    ("7", None),
    ("####", None),
    ("#### seven", None),
    ("#### 12 or 13", None),
    ("#### 3x", None),
    ("#### 1/2", None),
    ("#### nan", None),
    ("#### 1e3", None),
    ("### 7", None),
    ("####\n7", None),
    ("", None),
  ],
)
def test_parse_answer(text, answer):
  assert parse_answer(text) == (None if answer is None else Decimal(answer))


@given(st.integers(-(10**30), 10**30))
def test_numbers_of_any_size_are_exact(number):
  right = final_answer("", f"so #### {number:,}", str(number))
  assert right == {"reward": 1.0, "accuracy": 1.0, "format": 1.0}
  wrong = final_answer("", f"so #### {number + 1}", str(number))
  assert wrong == {"reward": 0.0, "accuracy": 0.0, "format": 1.0}


@given(st.text())
def test_any_text_can_be_scored(text):
  assert final_answer("", text, "5")["reward"] in (0.0, 1.0)


def test_a_completion_without_an_answer_scores_zero():
  assert final_answer("1+1=", "2", "2") == {
    "reward": 0.0,
    "accuracy": 0.0,
    "format": 0.0,
  }


@pytest.mark.parametrize("truth", ["", "x", "1/2"])
def test_ground_truth_must_be_a_number(truth):
  with pytest.raises(ValueError, match="ground_truth is"):
    final_answer("", "#### 1", truth)
