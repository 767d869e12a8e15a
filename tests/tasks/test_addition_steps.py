"""Step rewards of addition: which columns of a worked sum are right."""

import itertools

import pytest

from pgax.tasks import addition, addition_steps


def rewards(prompt, completion, truth):
  return [step.reward for step in addition_steps(prompt, completion, truth)]


def pieces(prompt, completion, truth):
  ends = [0] + [step.end for step in addition_steps(prompt, completion, truth)]
  return [completion[a:b].strip() for a, b in itertools.pairwise(ends)]


def test_every_step_of_a_right_solution_is_right():
  for index in range(0, 4000, 97):
    example = addition(digits=2).train[index]
    step_rewards = rewards(example.prompt, example.solution, example.ground_truth)
    assert step_rewards == [1.0, 1.0, 1.0]


@pytest.mark.parametrize(
  ("completion", "expected"),
  [
    ("7+5=12 8+4+1=13 #### 132", [1, 1, 1]),
    ("7+5=12 8+4+0=12 #### 122", [1, 0, 0]),  # the carry is forgotten
    ("7+5=13 8+4+1=13 #### 132", [0, 1, 1]),
    ("7+5=12 #### 132", [1, 0]),  # the answer is in the position of a column
    ("#### 132", [0]),
    ("7+5=12 8+4+1=13 0+0=0 #### 132", [1, 1, 0, 0]),
    (" 7+5=12", [0]),  # an empty piece has a position, but is not a step
    ("", []),
  ],
)
def test_columns_are_scored_one_by_one(completion, expected):
  assert rewards("87+45=", completion, "132") == expected


def test_steps_end_at_the_end_of_their_text():
  text = "7+5=12 8+4+1=13 #### 132"
  assert pieces("87+45=", text, "132") == ["7+5=12", "8+4+1=13", "#### 132"]
  assert addition_steps("87+45=", text, "132")[-1].end == len(text)


def test_other_prompts_are_rejected():
  for prompt in ("two and two", "12+345=", "1-1=", "+"):
    with pytest.raises(ValueError, match="prompt is .*; it must be a sum of numbers"):
      addition_steps(prompt, "4", "4")
