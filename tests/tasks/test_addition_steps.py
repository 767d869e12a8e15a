"""Rewards of steps: which columns of a worked sum are right."""

import itertools

import pytest

from pgax.data import addition
from pgax.rewards import addition_steps


def rewards(prompt, completion, truth):
  return [step.reward for step in addition_steps(prompt, completion, truth)]


def pieces(prompt, completion, truth):
  ends = [0] + [step.end for step in addition_steps(prompt, completion, truth)]
  return [completion[a:b].strip() for a, b in itertools.pairwise(ends)]


def test_a_right_solution_is_all_ones():
  for index in range(0, 4000, 97):
    example = addition(digits=2).train[index]
    found = rewards(example.prompt, example.solution, example.ground_truth)
    assert found == [1.0, 1.0, 1.0]


@pytest.mark.parametrize(
  ("completion", "expected"),
  [
    ("7+5=12 8+4+1=13 #### 132", [1, 1, 1]),
    ("7+5=12 8+4+0=12 #### 122", [1, 0, 0]),  # the carry forgotten
    ("7+5=13 8+4+1=13 #### 132", [0, 1, 1]),
    ("7+5=12 #### 132", [1, 0]),  # the answer stands where a column should
    ("#### 132", [0]),
    ("7+5=12 8+4+1=13 0+0=0 #### 132", [1, 1, 0, 0]),
    (" 7+5=12", [0]),  # a piece that is empty counts as a place, not as a step
    ("", []),
  ],
)
def test_columns(completion, expected):
  assert rewards("87+45=", completion, "132") == expected


def test_steps_end_with_their_text():
  text = "7+5=12 8+4+1=13 #### 132"
  assert pieces("87+45=", text, "132") == ["7+5=12", "8+4+1=13", "#### 132"]
  assert addition_steps("87+45=", text, "132")[-1].end == len(text)


def test_another_prompt_is_refused():
  for prompt in ("two and two", "12+345=", "1-1=", "+"):
    with pytest.raises(ValueError, match="prompt is .*; it must be a sum of numbers"):
      addition_steps(prompt, "4", "4")
