"""Stop strings across any token boundaries, compared with a search in the text."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgax.sampling import stop_table

PIECES = ["a", "b", "ab", "ba", "aab", "", "é", "</answer>", "</ans", "wer>", "b</"]
TOKENS = [*(piece.encode() for piece in PIECES), "é".encode()[:1], "é".encode()[1:]]
STOPS = ("aba", "bb", "</answer>", "éa")
TABLE = stop_table(STOPS, TOKENS)


def first_hit(tokens):
  """Number of tokens after which the table reports a completed stop string."""
  state = 0
  for count, token in enumerate(tokens, 1):
    state = TABLE[state, token]
    if state >= len(TABLE):
      return count
  return None


@given(st.lists(st.integers(0, len(TOKENS) - 1), max_size=12))
def test_agrees_with_a_search_in_the_text(tokens):
  expected = None
  for count in range(1, len(tokens) + 1):
    text = b"".join(TOKENS[i] for i in tokens[:count])
    if any(stop.encode() in text for stop in STOPS):
      expected = count
      break
  assert first_hit(tokens) == expected


def test_within_a_token_and_across():
  assert first_hit([7]) == 1
  assert first_hit([0, 8, 10, 9]) is None  # </ans b</ wer>
  assert first_hit([0, 10, 8, 9]) == 4  # b</ </ans wer>
  assert first_hit([0, 8, 5, 9, 0]) == 4  # a special token in between adds nothing
  assert first_hit([11, 12, 0]) == 3  # a character in two tokens


def test_continues_after_a_hit():
  after = TABLE[0, 7]
  assert after >= len(TABLE)
  assert TABLE[after - len(TABLE), 0] < len(TABLE)


def test_size():
  prefixes = {stop.encode()[:i] for stop in STOPS for i in range(len(stop.encode()) + 1)}
  assert TABLE.shape == (len(prefixes), len(TOKENS)) and TABLE.dtype == np.int32


@pytest.mark.parametrize("stops", [(), ("a", "")])
def test_bad_stops(stops):
  with pytest.raises(ValueError, match="they must be non-empty strings"):
    stop_table(stops, TOKENS)
