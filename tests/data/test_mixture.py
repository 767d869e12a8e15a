"""Mixtures of tasks: their proportions and their order."""

import collections
import dataclasses
import pickle

import numpy as np
import pytest

from pgax.data import CollatePrompts, Task, batches, byte_tokenizer, filtered, mixture
from pgax.data.limits import within_limit
from pgax.data.mixture import subset
from pgax.types import Example

COLLATE = CollatePrompts(byte_tokenizer(), max_prompt_tokens=6)


def task(letter, train, held_out, bad_rows=(), filtered=0):
  def examples(prefix, count):
    return [Example(f"{prefix}{i}", f"{prefix}{i}") for i in range(count)]

  splits = examples(letter, train), examples(f"{letter}h", held_out)
  return Task(*splits, bad_rows, filtered)


TASKS = {"a": task("a", 5, 4, ("a:1: x",), 1), "b": task("b", 3, 8, ("b:1: y",), 2)}
WEIGHTS = {"a": 3.0, "b": 1.0}


def texts(batch):
  return [example.ground_truth for example in batch.examples]


def test_batches_have_the_proportions_and_each_part_has_its_own_epochs():
  iterator = batches(mixture(TASKS, WEIGHTS).train, COLLATE, 4, seed=0)
  drawn = [texts(next(iterator)) for _ in range(15)]
  assert all([x[0] for x in batch].count("a") == 3 for batch in drawn)
  for letter, size in (("a", 5), ("b", 3)):
    stream = [x for batch in drawn for x in batch if x[0] == letter]
    epochs = [stream[i : i + size] for i in range(0, len(stream), size)]
    assert len(epochs) >= 5
    for epoch in epochs:
      assert sorted(epoch) == [f"{letter}{i}" for i in range(size)]
    assert len({tuple(epoch) for epoch in epochs}) > 1


def test_a_mixture_resumes_from_its_position():
  train = mixture(TASKS, WEIGHTS).train
  iterator = batches(train, COLLATE, 4, seed=1)
  for _ in range(7):
    next(iterator)
  position = iterator.get_state()
  expected = [texts(next(iterator)) for _ in range(5)]
  other = batches(train, COLLATE, 4, seed=1)
  other.set_state(position)
  assert [texts(next(other)) for _ in range(5)] == expected
  halves = [batches(train, COLLATE, 4, 1, i, 2) for i in range(2)]
  for half in halves:
    half.set_state(position)
  assert [[x for half in halves for x in texts(next(half))] for _ in range(5)] == expected


def test_held_out_problems_appear_once_each_and_in_proportion():
  held_out = mixture(TASKS, WEIGHTS).held_out
  problems = [held_out[i] for i in range(len(held_out))]
  assert len({x.prompt for x in problems}) == len(problems) == 12
  sources = [x.metadata["mixture"] for x in problems]
  assert collections.Counter(sources[:4]) == {"a": 3, "b": 1}
  assert all(x.prompt[0] == x.metadata["mixture"] for x in problems)
  assert pickle.loads(pickle.dumps(held_out))[3] == problems[3]


def test_counts_add_up_and_mixtures_can_be_nested():
  inner = mixture(TASKS, WEIGHTS)
  assert inner.bad_rows == ("a:1: x", "b:1: y") and inner.filtered == 3
  outer = mixture({"m": inner, "c": task("c", 2, 2)}, {"m": 1, "c": 1})
  drawn = collections.Counter(
    text[0]
    for _, batch in zip(range(10), batches(outer.train, COLLATE, 8, 0), strict=False)
    for text in texts(batch)
  )
  assert drawn == {"a": 30, "b": 10, "c": 40}
  assert outer.train[0].metadata["mixture"] in ("a", "b", "c")


def test_a_subset_of_a_mixture_keeps_its_weights():
  inner = mixture(TASKS, WEIGHTS)
  outer = mixture({"m": inner, "c": task("c", 2, 2)}, {"m": 1, "c": 1})
  for examples, removed, shares in (
    (inner.train, {"a0", "b2"}, {"a": 60, "b": 20}),
    (outer.train, {"a1", "a4", "b0", "c1"}, {"a": 30, "b": 10, "c": 40}),
  ):
    prompts = [x.prompt for x in map(examples.__getitem__, range(len(examples)))]
    indices = np.array([i for i, prompt in enumerate(prompts) if prompt not in removed])
    remaining = subset(examples, indices)
    remaining_prompts = {remaining[i].prompt for i in range(len(remaining))}
    assert remaining_prompts == set(prompts) - removed
    iterator = batches(remaining, COLLATE, 8, 0)
    drawn = [text for _ in range(10) for text in texts(next(iterator))]
    assert not removed & set(drawn) and len(set(drawn)) == len(indices)
    assert collections.Counter(text[0] for text in drawn) == shares
  with pytest.raises(ValueError, match="none of the 3 problems of .* part 'b' remains"):
    subset(inner.train, np.array([0, 1]))


def test_a_part_without_remaining_problems_is_named(tmp_path):
  long = dataclasses.replace(TASKS["b"], train=[Example("b" * 6, "b")])
  message = "none of the 1 problems of .* 'b' remains in the split 'train': .* the 6 tokens"
  with pytest.raises(ValueError, match=message):
    within_limit(mixture(TASKS | {"b": long}, WEIGHTS), COLLATE)
  rates = tmp_path / "rates.jsonl"
  rates.write_text('{}\n{"prompt": "a0", "rate": 0.5}\n')
  message = "none of the 3 problems of .* 'b' remains with a rate above 0.0 .*rates.jsonl"
  with pytest.raises(ValueError, match=message):
    filtered(mixture(TASKS, WEIGHTS), str(rates))


@pytest.mark.parametrize(
  ("weights", "message"),
  [
    ({"a": 1.0}, "weights are given for .'a'. and tasks for .'a', 'b'."),
    ({"a": 1.0, "b": 0.0}, "the weight of b is 0.0; it must be positive"),
    ({"a": 1.0, "b": float("nan")}, "the weight of b is nan"),
  ],
)
def test_bad_weights_are_rejected(weights, message):
  with pytest.raises(ValueError, match=message):
    mixture(TASKS, weights)
