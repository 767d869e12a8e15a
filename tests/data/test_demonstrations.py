"""Worked solutions in rows: every token where it belongs, packed or not."""

import numpy as np
import pytest

from pgax.data import (
  CollateDemonstrations,
  CollatePrompts,
  byte_tokenizer,
  packed_batches,
)
from pgax.types import Example

TOKENIZER = byte_tokenizer()
RNG = np.random.default_rng(0)
EXAMPLES = [
  Example("q" * RNG.integers(1, 6), "", f"{i:02d}" + "s" * RNG.integers(0, 5))
  for i in range(23)
]
COLLATE = CollateDemonstrations(CollatePrompts(TOKENIZER, 6), max_tokens=7)


def texts(rows):
  """Every text of the rows: its tokens, which are learned, and its positions."""
  return [
    tuple(tuple(x[row][at].tolist()) for x in (rows.tokens, rows.learned, rows.positions))
    for row in range(len(rows.tokens))
    for segment in range(1, rows.segments[row].max() + 1)
    for at in [rows.segments[row] == segment]
  ]


def alone(example):
  (text,) = texts(COLLATE([example]))
  return text


def test_one_in_a_row():
  rows = COLLATE(EXAMPLES[:3])
  assert rows.tokens.shape == (3, 13) and rows.tokens.dtype == np.int32
  for example, row in zip(EXAMPLES, range(3), strict=False):
    real = rows.segments[row] == 1
    ids = rows.tokens[row][real]
    assert TOKENIZER.decode(ids, skip_special_tokens=True) == (
      example.prompt + example.solution
    )
    learned = rows.tokens[row][rows.learned[row]]
    assert TOKENIZER.decode(learned, skip_special_tokens=True) == example.solution
    assert learned[-1] == ids[-1] == TOKENIZER.eos_token_id
    np.testing.assert_array_equal(rows.positions[row][real], np.arange(real.sum()))
    assert not np.any(rows.tokens[row][~real]) and not np.any(rows.segments[row][~real])


def test_nothing_is_cut():
  with pytest.raises(ValueError, match="solution '12345678' has 9 tokens.*allows 7"):
    COLLATE([Example("1", "", "12345678")])
  with pytest.raises(ValueError, match="prompt '123456' has 7 tokens.*allows 6"):
    COLLATE([Example("123456", "", "1")])
  with pytest.raises(ValueError, match="has no solution"):
    COLLATE([Example("1", "1")])


@pytest.mark.parametrize("width", [13, 20, 41])
def test_packed_rows_hold_every_text_once(width):
  iterator = packed_batches(EXAMPLES, COLLATE, 3, width, seed=1)
  found, padding = [], []
  while len(found) < 3 * len(EXAMPLES):
    rows = next(iterator)
    assert rows.tokens.shape == (3, width) and rows.learned.dtype == bool
    # Texts stand one behind the other, without a gap, and then there is only padding.
    real = rows.segments > 0
    assert np.all(np.diff(real.astype(int)) <= 0)
    assert np.all(np.diff(rows.segments)[real[:, 1:]] >= 0)
    found += texts(rows)
    padding.append(1 - real.mean())
  expected = sorted(alone(example) for example in EXAMPLES)
  counts = [found.count(text) for text in expected]
  assert min(counts) >= 2 and max(counts) <= min(counts) + 2
  assert np.mean(padding) < {13: 0.4, 20: 0.35, 41: 0.2}[width]


def test_a_text_goes_where_there_is_room():
  rows = next(packed_batches(EXAMPLES, COLLATE, 3, 30, seed=0))
  used = (rows.segments > 0).sum(-1)
  first = [(rows.segments[row] == 1).sum() for row in range(3)]
  # A row was begun only when none before had room for its first text.
  assert all(used[a] + first[b] > 30 for b in range(3) for a in range(b))


def test_position_is_saved_and_restored():
  iterator = packed_batches(EXAMPLES, COLLATE, 2, 30, seed=3)
  for _ in range(3):
    next(iterator)
  state = iterator.get_state()
  expected = [next(iterator) for _ in range(4)]
  again = packed_batches(EXAMPLES, COLLATE, 2, 30, seed=3)
  again.set_state(state)
  for rows in expected:
    for ours, theirs in zip(next(again), rows, strict=True):
      np.testing.assert_array_equal(ours, theirs)


def test_processes_pack_different_texts():
  parts = [
    next(packed_batches(EXAMPLES, COLLATE, 4, 30, 0, index, 2)) for index in range(2)
  ]
  assert all(rows.tokens.shape == (2, 30) for rows in parts)
  first, second = (set(texts(rows)) for rows in parts)
  assert first and second and not first & second


@pytest.mark.parametrize(
  ("arguments", "told"),
  [
    ((2, 12, 0), "row_tokens is 12; a prompt of 6 tokens and a solution of 7 need 13"),
    ((3, 30, 0, 0, 2), "batch_size is 3; it must be a multiple of process_count"),
    ((2, 30, 0, 2, 2), "process_index is 2"),
  ],
)
def test_bad_shapes(arguments, told):
  with pytest.raises(ValueError, match=told):
    packed_batches(EXAMPLES, COLLATE, *arguments)
