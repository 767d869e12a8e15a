"""Stop strings, which end a completion and may span token boundaries.

The strings are compiled to an automaton over bytes (Aho and Corasick, 1975), and that to
one over tokens: a table of the state after each token, given the state before it, and of
whether the token completed a string. A jitted loop then needs one look-up per token.
"""

from collections.abc import Sequence

import numpy as np


def _byte_automaton(stops: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
  """Returns next states `[states, 256]`, and the states `[states]` that end a string.

  A state is the longest suffix of the text that is a prefix of a stop string.
  """
  prefixes = sorted({stop[:i] for stop in stops for i in range(len(stop) + 1)}, key=len)
  number = {prefix: state for state, prefix in enumerate(prefixes)}

  def longest(text: bytes) -> int:
    return next(number[text[i:]] for i in range(len(text) + 1) if text[i:] in number)

  step = np.array([[longest(x + bytes([b])) for b in range(256)] for x in prefixes])
  ends = np.array([any(x.endswith(stop) for stop in stops) for x in prefixes])
  return step, ends


def stop_table(stops: Sequence[str], token_bytes: Sequence[bytes]) -> np.ndarray:
  """Builds the automaton that finds stop strings in tokens.

  Args:
    stops: stop strings; a completion ends with the token that completes one of them.
    token_bytes: UTF-8 bytes of all `V` tokens, empty for special tokens.

  Returns:
    `[states, V]` int32: the state after a token, plus `states` if the token completed a
    string. State 0 is that of an empty text.

  Raises:
    ValueError: if there are no strings, or one is empty.

  Example:
    Token 0 is a prefix of the stop string: it leads to state 1. There, token 1 completes
    the string, and leads to state 2: its entry is 2 + 3, because there are 3 states.

    >>> print(stop_table(["ab"], [b"a", b"b"]))
    [[1 0]
     [1 5]
     [1 0]]
  """
  if not stops or not all(stops):
    raise ValueError(f"stop strings are {list(stops)}; they must be non-empty strings")
  step, ends = _byte_automaton([stop.encode() for stop in stops])
  states, vocab = len(step), len(token_bytes)
  lengths = np.array([len(x) for x in token_bytes])
  after = np.repeat(np.arange(states)[:, None], vocab, axis=1)
  completed = np.zeros((states, vocab), bool)
  for i in range(lengths.max(initial=0)):
    longer = np.flatnonzero(lengths > i)
    byte = np.array([token_bytes[token][i] for token in longer])
    after[:, longer] = step[after[:, longer], byte]
    completed[:, longer] |= ends[after[:, longer]]
  return (after + states * completed).astype(np.int32)
