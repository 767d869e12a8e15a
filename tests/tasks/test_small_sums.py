"""Small sums: every problem once, the same split for a seed, and scored by its number."""

import pytest

from pgax.errors import UserError
from pgax.rewards import NumericMatch
from pgax.tasks import small_sums


def test_every_sum_is_in_one_split():
  task = small_sums(largest=5)
  prompts = [x.prompt for x in (*task.train, *task.held_out)]
  assert len(prompts) == len(set(prompts)) == 25 and len(task.held_out) == 8
  for example in task.train:
    assert eval(example.prompt.partition(" =")[0]) == int(example.ground_truth)
  assert small_sums(largest=5) == task != small_sums(largest=5, seed=1)


def test_a_sentence_is_scored_by_its_last_number():
  example = small_sums(template="What is {prompt}?").train[0]
  assert example.prompt.startswith("What is ")
  for text, reward in ((f"It is {example.ground_truth}.", 1.0), ("It is 99.", 0.0)):
    scores = NumericMatch()(example.prompt, text, example.ground_truth)
    assert scores["reward"] == reward


def test_what_is_invalid_is_named():
  with pytest.raises(UserError, match="largest is 1; it must be at least 2"):
    small_sums(largest=1)
