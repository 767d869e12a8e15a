"""Stop sequences: strings that end a completion, wherever tokens cut them.

The strings become one automaton over bytes (Aho and Corasick, 1975), and that one over
tokens: a table that says, for the state before a token, the state after it and whether a
string was completed within. A jitted loop then follows the text by one look-up a token.
"""

from collections.abc import Sequence

import numpy as np


def _byte_automaton(stops: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
  """Next state `[states, 256]`, and whether a string ends in a state `[states]`.

  A state is the longest end of the text read that begins a string.
  """
  prefixes = sorted({stop[:i] for stop in stops for i in range(len(stop) + 1)}, key=len)
  number = {prefix: state for state, prefix in enumerate(prefixes)}

  def longest(text: bytes) -> int:
    return next(number[text[i:]] for i in range(len(text) + 1) if text[i:] in number)

  step = np.array([[longest(x + bytes([b])) for b in range(256)] for x in prefixes])
  ends = np.array([any(x.endswith(stop) for stop in stops) for x in prefixes])
  return step, ends


def stop_table(stops: Sequence[str], token_bytes: Sequence[bytes]) -> np.ndarray:
  """What every token does to the search for stop sequences.

  Args:
    stops: the strings; a completion ends with the token that completes one of them.
    token_bytes: the UTF-8 bytes of every token, empty for special ones, `V` of them.

  Returns:
    `[states, V]` int32: the state after a token, and `states` more if a string was
    completed within it. The first state is that of an empty text.

  Raises:
    ValueError: if there are no strings, or an empty one.
  """
  if not stops or not all(stops):
    raise ValueError(f"stop sequences are {list(stops)}; each must be a non-empty string")
  step, ends = _byte_automaton([stop.encode() for stop in stops])
  states, vocab = len(step), len(token_bytes)
  lengths = np.array([len(x) for x in token_bytes])
  at = np.repeat(np.arange(states)[:, None], vocab, axis=1)
  hit = np.zeros((states, vocab), bool)
  for i in range(lengths.max(initial=0)):
    longer = np.flatnonzero(lengths > i)
    byte = np.array([token_bytes[token][i] for token in longer])
    at[:, longer] = step[at[:, longer], byte]
    hit[:, longer] |= ends[at[:, longer]]
  return (at + states * hit).astype(np.int32)
