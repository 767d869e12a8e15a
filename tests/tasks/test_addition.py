"""Generated problems: right answers, the pupil's habit, and a split that can't leak."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgax.data import Task, addition
from pgax.tasks.addition import is_held_out, worked_sum
from pgax.rewards import final_answer
from pgax.types import Example


@pytest.fixture(scope="module")
def pupil():
  return addition(digits=2, forget_carry=0.95)


def _pairs(examples) -> set[tuple[int, int]]:
  found = (re.fullmatch(r"(\d+)\+(\d+)=", examples[i].prompt) for i in range(len(examples)))
  return {tuple(map(int, match.groups())) for match in found}


def test_split_is_disjoint_complete_and_blind_to_order(pupil):
  train, held_out = _pairs(pupil.train), _pairs(pupil.held_out)
  assert not train & held_out
  assert not {(b, a) for a, b in train} & held_out
  assert train | held_out == {(a, b) for a in range(100) for b in range(100)}
  assert 0.08 < len(held_out) / 10_000 < 0.12


@given(st.integers(0, 999), st.integers(0, 999))
def test_split_does_not_depend_on_order(a, b):
  first = is_held_out(np.array([a]), np.array([b]), 3)
  assert first == is_held_out(np.array([b]), np.array([a]), 3)


@given(st.integers(0, 999), st.integers(0, 999))
def test_a_careful_pupil_is_right(a, b):
  solution = worked_sum(a, b, 3, draws=(0.0, 0.0, 0.0), forget_carry=0.0)
  assert final_answer("", solution, str(a + b))["reward"] == 1.0
  for step in solution.split(" #### ")[0].split():
    terms, total = step.split("=")
    assert sum(map(int, terms.split("+"))) == int(total)


def test_worked_examples():
  assert worked_sum(87, 45, 2, (1.0, 1.0), 0.5) == "7+5=12 8+4+1=13 #### 132"
  assert worked_sum(87, 45, 2, (0.0, 1.0), 0.5) == "7+5=12 8+4+0=12 #### 122"
  # The last column's carry is written down, never carried: it can't be forgotten.
  assert worked_sum(87, 45, 2, (1.0, 0.0), 0.5) == "7+5=12 8+4+1=13 #### 132"


def test_larger_sums_are_forgotten_less():
  draws = (0.6, 1.0)
  assert worked_sum(5, 5, 2, draws, 0.95).endswith("#### 0")  # 10: chance 0.95
  assert worked_sum(9, 9, 2, draws, 0.95).endswith("#### 18")  # 18: half of that


def test_habit_shows_in_the_solutions(pupil):
  def right(task):
    some = [task.train[i] for i in range(0, len(task.train), 7)]
    return np.mean([final_answer("", x.solution, x.ground_truth)["reward"] for x in some])

  assert right(addition(digits=2)) == 1.0
  assert 0.5 < right(pupil) < 0.8


def test_examples_are_a_function_of_the_seed():
  one, same, other = (addition(2, 0.5, seed) for seed in (1, 1, 2))
  first = [one.train[i].solution for i in range(200)]
  assert first == [same.train[i].solution for i in range(200)]
  assert first != [other.train[i].solution for i in range(200)]


@pytest.mark.parametrize(
  ("options", "told"),
  [
    ({"digits": 0}, "digits is 0; allowed are 1 to 4"),
    ({"digits": 5}, "digits is 5"),
    ({"seed": -1}, "seed is -1"),
    ({"forget_carry": 1.5}, "forget_carry is 1.5"),
    ({"forget_carry": float("nan")}, "forget_carry is nan"),
  ],
)
def test_bad_arguments(options, told):
  with pytest.raises(ValueError, match=told):
    addition(**options)


def test_empty_split():
  with pytest.raises(ValueError, match="split 'held_out' is empty"):
    Task(train=[Example("1", "1")], held_out=[])
