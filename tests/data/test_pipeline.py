"""The pipeline: epochs, order, and the position that can be saved."""

import json

import numpy as np
import pytest

from pgax.data import CollatePrompts, batches, byte_tokenizer
from pgax.types import Example

EXAMPLES = [Example(f"{i}?", str(i), f"#### {i}") for i in range(10)]
TOKENIZER = byte_tokenizer()
PROMPTS = CollatePrompts(TOKENIZER, max_prompt_tokens=6)


def _texts(batch):
  return [example.ground_truth for example in batch.examples]


def test_every_epoch_has_all_examples_in_a_new_order():
  iterator = batches(EXAMPLES, PROMPTS, 5, seed=0)
  epochs = [_texts(next(iterator)) + _texts(next(iterator)) for _ in range(3)]
  for epoch in epochs:
    assert sorted(epoch) == [str(i) for i in range(10)]
  assert epochs[0] != epochs[1] != epochs[2]
  assert _texts(next(batches(EXAMPLES, PROMPTS, 5, seed=1))) != epochs[0][:5]


def test_the_position_can_be_saved_as_json():
  iterator = batches(EXAMPLES, PROMPTS, 4, seed=3)
  for _ in range(4):  # beyond the first epoch
    next(iterator)
  saved = json.loads(json.dumps(iterator.get_state()))
  expected = [_texts(next(iterator)) for _ in range(3)]
  other = batches(EXAMPLES, PROMPTS, 4, seed=3)
  other.set_state(saved)
  assert [_texts(next(other)) for _ in range(3)] == expected


def test_batches_can_exceed_an_epoch_or_have_one_example():
  assert len(next(batches(EXAMPLES[:3], PROMPTS, 8, seed=0)).examples) == 8
  ones = [batches(EXAMPLES, PROMPTS, 1, 0), batches(EXAMPLES, PROMPTS, 2, 0, 1, 2)]
  assert [len(next(x).examples) for x in ones] == [1, 1]


@pytest.mark.parametrize("count", [2, 4])
def test_processes_split_every_global_batch(count):
  single = batches(EXAMPLES, PROMPTS, 8, seed=5)
  parts = [batches(EXAMPLES, PROMPTS, 8, 5, i, count) for i in range(count)]
  for _ in range(6):  # through several epochs
    shares = [_texts(next(part)) for part in parts]
    assert [len(share) for share in shares] == [8 // count] * count
    assert [x for share in shares for x in share] == _texts(next(single))
  # A position counts global batches, so it suits any number of processes.
  assert all(part.get_state() == single.get_state() for part in parts)
  other = batches(EXAMPLES, PROMPTS, 8, 5, 1, 2)
  other.set_state(parts[0].get_state())
  assert _texts(next(other)) == _texts(next(single))[4:]


@pytest.mark.parametrize(
  ("arguments", "message"),
  [
    ((8, 0, 3, 3), "process_index is 3; it must be in .0, 2."),
    ((8, 0, 0, 3), "batch_size is 8; it must be a multiple of process_count, which is 3"),
    ((0, 0), "batch_size is 0"),
  ],
)
def test_bad_shares_are_rejected(arguments, message):
  with pytest.raises(ValueError, match=message):
    batches(EXAMPLES, PROMPTS, *arguments)


def test_prompts_are_collated_into_arrays():
  batch = PROMPTS([Example("12", "x"), Example("345", "y")])
  assert batch.tokens.shape == (2, 6) and batch.tokens.dtype == np.int32
  np.testing.assert_array_equal(batch.mask.sum(-1), [3, 4])  # including BOS
  assert np.all(batch.tokens[~batch.mask] == 0)


def test_long_prompts_raise_instead_of_being_truncated():
  with pytest.raises(ValueError, match="prompt '123456' has 7 tokens.*allows 6"):
    PROMPTS([Example("123456", "x")])
