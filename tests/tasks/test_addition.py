"""Addition: right answers, the demonstrator's habit, and splits that do not overlap."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgax.rewards import final_answer
from pgax.tasks import addition
from pgax.tasks.addition import is_held_out, worked_sum


@pytest.fixture(scope="module")
def forgetful():
  return addition(digits=2, forget_carry=0.95)


def _pairs(examples) -> set[tuple[int, int]]:
  prompts = (examples[i].prompt for i in range(len(examples)))
  matches = (re.fullmatch(r"(\d+)\+(\d+)=", prompt) for prompt in prompts)
  return {tuple(map(int, match.groups())) for match in matches}


def test_splits_are_disjoint_and_complete_in_any_order_of_operands(forgetful):
  train, held_out = _pairs(forgetful.train), _pairs(forgetful.held_out)
  assert not train & held_out
  assert not {(b, a) for a, b in train} & held_out
  assert train | held_out == {(a, b) for a in range(100) for b in range(100)}
  assert 0.08 < len(held_out) / 10_000 < 0.12


@given(st.integers(0, 999), st.integers(0, 999))
def test_the_split_does_not_depend_on_the_order_of_operands(a, b):
  first = is_held_out(np.array([a]), np.array([b]), 3)
  assert first == is_held_out(np.array([b]), np.array([a]), 3)


@given(st.integers(0, 999), st.integers(0, 999))
def test_solutions_that_never_forget_a_carry_are_right(a, b):
  solution = worked_sum(a, b, 3, draws=(0.0, 0.0, 0.0), forget_carry=0.0)
  assert final_answer("", solution, str(a + b))["reward"] == 1.0
  for step in solution.split(" #### ")[0].split():
    terms, total = step.split("=")
    assert sum(map(int, terms.split("+"))) == int(total)


def test_worked_sums():
  assert worked_sum(87, 45, 2, (1.0, 1.0), 0.5) == "7+5=12 8+4+1=13 #### 132"
  assert worked_sum(87, 45, 2, (0.0, 1.0), 0.5) == "7+5=12 8+4+0=12 #### 122"
  # The last column has no carry to forget.
  assert worked_sum(87, 45, 2, (1.0, 0.0), 0.5) == "7+5=12 8+4+1=13 #### 132"


def test_carries_of_larger_sums_are_forgotten_less_often():
  draws = (0.6, 1.0)
  assert worked_sum(5, 5, 2, draws, 0.95).endswith("#### 0")  # 10: chance 0.95
  assert worked_sum(9, 9, 2, draws, 0.95).endswith("#### 18")  # 18: half of that


def test_solutions_show_the_habit(forgetful):
  def accuracy(task):
    examples = [task.train[i] for i in range(0, len(task.train), 7)]
    scores = [final_answer("", x.solution, x.ground_truth) for x in examples]
    return np.mean([x["reward"] for x in scores])

  assert accuracy(addition(digits=2)) == 1.0
  assert 0.5 < accuracy(forgetful) < 0.8


def test_examples_are_a_function_of_the_seed():
  one, same, other = (addition(2, 0.5, seed) for seed in (1, 1, 2))
  first = [one.train[i].solution for i in range(200)]
  assert first == [same.train[i].solution for i in range(200)]
  assert first != [other.train[i].solution for i in range(200)]


@pytest.mark.parametrize(
  ("options", "message"),
  [
    ({"digits": 0}, "digits is 0; it must be from 1 to 4"),
    ({"digits": 5}, "digits is 5"),
    ({"seed": -1}, "seed is -1"),
    ({"forget_carry": 1.5}, "forget_carry is 1.5"),
    ({"forget_carry": float("nan")}, "forget_carry is nan"),
  ],
)
def test_bad_arguments_are_rejected(options, message):
  with pytest.raises(ValueError, match=message):
    addition(**options)
