"""Rows of worked solutions, one per row or packed."""

import jax
import numpy as np
import pytest

from pgax.data import CollateDemonstrations, CollatePrompts, byte_tokenizer, packed_batches
from pgax.types import Example

TOKENIZER = byte_tokenizer()
RNG = np.random.default_rng(0)
EXAMPLES = [
  Example("q" * RNG.integers(1, 6), "", f"{i:02d}" + "s" * RNG.integers(0, 5))
  for i in range(23)
]
COLLATE = CollateDemonstrations(CollatePrompts(TOKENIZER, 6), max_completion_tokens=7)


def texts(rows):
  """Returns the tokens, the learned mask and the positions of every text."""
  return [
    tuple(tuple(x[row][at].tolist()) for x in (rows.tokens, rows.learned, rows.positions))
    for row in range(len(rows.tokens))
    for segment in range(1, rows.segments[row].max() + 1)
    for at in [rows.segments[row] == segment]
  ]


def unpacked(example):
  (text,) = texts(COLLATE([example]))
  return text


def test_one_demonstration_per_row():
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


def test_long_texts_raise_instead_of_being_truncated():
  with pytest.raises(ValueError, match="solution '12345678' has 9 tokens.*allows 7"):
    COLLATE([Example("1", "", "12345678")])
  with pytest.raises(ValueError, match="prompt '123456' has 7 tokens.*allows 6"):
    COLLATE([Example("123456", "", "1")])
  with pytest.raises(ValueError, match="has no solution"):
    COLLATE([Example("1", "1")])


@pytest.mark.parametrize("width", [13, 20, 41])
def test_packed_rows_have_every_text_equally_often(width):
  iterator = packed_batches(EXAMPLES, COLLATE, 3, width, seed=1)
  packed, padding = [], []
  while len(packed) < 3 * len(EXAMPLES):
    rows = next(iterator)
    assert rows.tokens.shape == (3, width) and rows.learned.dtype == bool
    # Texts follow one another without gaps, and padding follows the last one.
    real = rows.segments > 0
    assert np.all(np.diff(real.astype(int)) <= 0)
    assert np.all(np.diff(rows.segments)[real[:, 1:]] >= 0)
    packed += texts(rows)
    padding.append(1 - real.mean())
  expected = sorted(unpacked(example) for example in EXAMPLES)
  counts = [packed.count(text) for text in expected]
  assert min(counts) >= 2 and max(counts) <= min(counts) + 2
  assert np.mean(padding) < {13: 0.4, 20: 0.35, 41: 0.2}[width]


def test_a_text_goes_into_the_first_row_with_room():
  rows = next(packed_batches(EXAMPLES, COLLATE, 3, 30, seed=0))
  used = (rows.segments > 0).sum(-1)
  first = [(rows.segments[row] == 1).sum() for row in range(3)]
  # A row is started only if no earlier row has room for its first text.
  assert all(used[a] + first[b] > 30 for b in range(3) for a in range(b))


def test_the_position_is_saved_and_restored():
  iterator = packed_batches(EXAMPLES, COLLATE, 2, 30, seed=3)
  for _ in range(3):
    next(iterator)
  state = iterator.get_state()
  expected = [next(iterator) for _ in range(4)]
  restored = packed_batches(EXAMPLES, COLLATE, 2, 30, seed=3)
  restored.set_state(state)
  for rows in expected:
    jax.tree.map(np.testing.assert_array_equal, next(restored), rows)


def test_processes_pack_different_texts():
  parts = [
    next(packed_batches(EXAMPLES, COLLATE, 4, 30, 0, index, 2)) for index in range(2)
  ]
  assert all(rows.tokens.shape == (2, 30) for rows in parts)
  first, second = (set(texts(rows)) for rows in parts)
  assert first and second and not first & second


@pytest.mark.parametrize(
  ("arguments", "message"),
  [
    ((2, 12, 0), "row_tokens is 12; a prompt of 6 tokens and a solution of 7 need 13"),
    ((3, 30, 0, 0, 2), "batch_size is 3; it must be a multiple of process_count"),
    ((2, 30, 0, 2, 2), "process_index is 2"),
  ],
)
def test_bad_shapes_are_rejected(arguments, message):
  with pytest.raises(ValueError, match=message):
    packed_batches(EXAMPLES, COLLATE, *arguments)
