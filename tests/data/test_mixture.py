"""Several tasks as one: their proportions, their order and their own rewards."""

import collections
import dataclasses
import pickle

import numpy as np
import pytest

from pgax.data import CollatePrompts, Task, batches, byte_tokenizer, filtered, mixture
from pgax.data.limits import within_limit
from pgax.data.mixture import subset
from pgax.rewards import ByTask, by_task, final_answer
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


def test_every_batch_has_the_proportions_and_every_part_its_epochs():
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


def test_a_mixture_goes_on_from_its_position():
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


def test_held_out_problems_once_each_and_in_proportion_from_the_first_on():
  held_out = mixture(TASKS, WEIGHTS).held_out
  found = [held_out[i] for i in range(len(held_out))]
  assert len({x.prompt for x in found}) == len(found) == 12
  sources = [x.metadata["mixture"] for x in found]
  assert collections.Counter(sources[:4]) == {"a": 3, "b": 1}
  assert all(x.prompt[0] == x.metadata["mixture"] for x in found)
  assert pickle.loads(pickle.dumps(held_out))[3] == found[3]


def test_counts_add_up_and_mixtures_may_be_mixed():
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


def test_what_is_left_of_a_mixture_has_its_weights():
  inner = mixture(TASKS, WEIGHTS)
  outer = mixture({"m": inner, "c": task("c", 2, 2)}, {"m": 1, "c": 1})
  for whole, gone, shares in (
    (inner.train, {"a0", "b2"}, {"a": 60, "b": 20}),
    (outer.train, {"a1", "a4", "b0", "c1"}, {"a": 30, "b": 10, "c": 40}),
  ):
    everything = [x.prompt for x in map(whole.__getitem__, range(len(whole)))]
    kept = np.array([i for i, prompt in enumerate(everything) if prompt not in gone])
    left = subset(whole, kept)
    assert {left[i].prompt for i in range(len(left))} == set(everything) - gone
    iterator = batches(left, COLLATE, 8, 0)
    drawn = [text for _ in range(10) for text in texts(next(iterator))]
    assert not gone & set(drawn) and len(set(drawn)) == len(kept)
    assert collections.Counter(text[0] for text in drawn) == shares
  with pytest.raises(ValueError, match="none of the 3 problems of .* part 'b' is left"):
    subset(inner.train, np.array([0, 1]))


def test_a_part_of_which_nothing_is_left_is_named(tmp_path):
  long = dataclasses.replace(TASKS["b"], train=[Example("b" * 6, "b")])
  told = "none of the 1 problems of .* 'b' is left in the split 'train': .* more than 6"
  with pytest.raises(ValueError, match=told):
    within_limit(mixture(TASKS | {"b": long}, WEIGHTS), COLLATE)
  rates = tmp_path / "rates.jsonl"
  rates.write_text('{}\n{"prompt": "a0", "rate": 0.5}\n')
  told = "none of the 3 problems of .* 'b' is left, of rates above 0.0 .*rates.jsonl"
  with pytest.raises(ValueError, match=told):
    filtered(mixture(TASKS, WEIGHTS), str(rates))


@pytest.mark.parametrize(
  ("weights", "told"),
  [
    ({"a": 1.0}, "weights are given for .'a'. and tasks for .'a', 'b'."),
    ({"a": 1.0, "b": 0.0}, "the weight of b is 0.0; it must be positive"),
    ({"a": 1.0, "b": float("nan")}, "the weight of b is nan"),
  ],
)
def test_bad_weights(weights, told):
  with pytest.raises(ValueError, match=told):
    mixture(TASKS, weights)


def test_each_task_has_its_reward():
  reward = by_task({"a": final_answer, "b": shout})
  assert reward == ByTask((("a", final_answer), ("b", shout)))
  told = reward("", "#### 3", "3", {"mixture": "a"})
  assert told == {
    "reward": 1.0,
    "accuracy": 1.0,
    "a": 1.0,
    "a/accuracy": 1.0,
    "a/format": 1.0,
  }
  assert reward("", "X", "", {"mixture": "b"}) == {"reward": 0.5, "accuracy": 0.0, "b": 0.5}
  with pytest.raises(ValueError, match="of task None; there are reward functions for a, b"):
    reward("", "", "", {})
  with pytest.raises(ValueError, match="functions has 'reward'"):
    by_task({"reward": shout})


def shout(prompt, completion, ground_truth, metadata):
  return {"reward": 0.5 * completion.isupper()}
