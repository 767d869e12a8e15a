"""Countdown: solvable problems, splits that do not overlap, the demonstrator's habit."""

import itertools
import pickle

import numpy as np
import pytest

from pgax.rewards.expressions import parse_expression
from pgax.tasks import Countdown, countdown
from pgax.tasks.countdown import is_held_out

REWARD = Countdown()


def first(examples, count=150):
  return [examples[i] for i in range(count)]


def scores(examples, name="reward"):
  results = [REWARD("", x.solution, x.ground_truth, x.metadata) for x in examples]
  return np.array([x[name] for x in results])


def test_every_problem_has_a_solution():
  task = countdown(operands=3, largest=9)
  for example in first(task.train) + first(task.held_out):
    numbers, target = example.metadata["numbers"], example.metadata["target"]
    assert example.prompt == f"{' '.join(map(str, numbers))} = {target}\n"
    assert example.ground_truth == str(target) and target > 0
    assert len(numbers) == 3 and all(1 <= x <= 9 for x in numbers)
    candidates = (
      f"{a}{p}{b}{q}{c}"
      for a, b, c in itertools.permutations(numbers)
      for p, q in itertools.product("+-*", repeat=2)
    )
    assert any(parse_expression(text).value == target for text in candidates)


def test_splits_do_not_overlap_in_any_order_of_numbers():
  task = countdown(operands=2, largest=9)

  def keys(examples):
    sample = first(examples, 600)
    return {(*sorted(x.metadata["numbers"]), x.metadata["target"]) for x in sample}

  train, held_out = keys(task.train), keys(task.held_out)
  assert train and held_out and not train & held_out
  assert is_held_out((3, 5), 8) == is_held_out((5, 3), 8)
  held_out = [
    is_held_out((a, b), c) for a in range(20) for b in range(a) for c in range(20)
  ]
  assert 0.08 < np.mean(held_out) < 0.12


def test_a_patient_demonstrator_is_right_and_a_hasty_one_often_wrong():
  patient = countdown(operands=2, largest=9, patience=1.0, tries=100)
  assert scores(first(patient.train)).all()
  settings = {"operands": 3, "largest": 9, "patience": 0.5, "tries": 4}
  hasty = first(countdown(**settings).train)
  assert 0.1 < scores(hasty).mean() < 0.5
  assert scores(hasty, "format").all()
  tries = [x.solution.count("=") for x in hasty]
  assert max(tries) == 4 and 1 < np.mean(tries) < 2.5


def test_every_step_of_a_search_is_computed_right():
  for example in first(countdown(operands=4, largest=50, patience=0.9).train, 50):
    steps, _, answer = example.solution.partition(" #### ")
    values = set()
    for step, verdict in zip(*[iter(steps.split())] * 2, strict=True):
      text, _, value = step.rpartition("=")
      assert parse_expression(text).value == int(value) and value not in values
      assert verdict == ("yes" if value == example.ground_truth else "no")
      values.add(value)
    assert text == answer


def test_problems_do_not_change_between_versions():
  settings = {
    "operands": 3,
    "largest": 9,
    "operators": "-",
  }  # hundreds of draws per problem
  for examples, prompt in (
    (countdown().train, "8 9 2 = 74\n"),
    (countdown().held_out, "8 5 5 = 33\n"),
    (countdown(**settings).held_out, "1 1 6 = 4\n"),
  ):
    assert examples[5].prompt == prompt


def test_problems_are_a_function_of_the_seed():
  one, same, other = (countdown(seed=seed, patience=0.5) for seed in (1, 1, 2))
  assert (
    first(one.train) == first(same.train) == first(pickle.loads(pickle.dumps(one)).train)
  )
  assert first(one.train) != first(other.train)
  assert one.train[7] == one.train[7]
  assert countdown(template="Reach: {prompt}").train[0].prompt.startswith("Reach: ")
  with pytest.raises(IndexError):
    countdown(train_size=3).train[3]


@pytest.mark.parametrize(
  ("settings", "message"),
  [
    ({"operands": 1}, "operands is 1; it must be in .2, 4."),
    ({"operands": 5}, "operands is 5"),
    ({"largest": 1}, "largest is 1"),
    ({"patience": 1.5}, "patience is 1.5"),
    ({"patience": float("nan")}, "patience is nan"),
    ({"tries": 0}, "tries is 0"),
    ({"train_size": 0}, "train_size is 0"),
    ({"held_out_size": 0}, "held_out_size is 0"),
    ({"seed": -1}, "seed is -1"),
    ({"operators": ""}, "operators is ''"),
    ({"operators": "+/"}, "operators is '.*'; it must be a nonempty subset of"),
    ({"template": ""}, "template is ''"),
    (
      {"operands": 2, "largest": 3, "operators": "+"},
      r"operands is 2, largest is 3 and operators is '\+': none of .* the held-out split",
    ),
    ({"operands": 4, "largest": 2, "operators": "-"}, "none of .* the training split"),
  ],
)
def test_bad_arguments_are_rejected(settings, message):
  with pytest.raises(ValueError, match=message):
    countdown(**settings)
