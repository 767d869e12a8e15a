"""Rewards as functions of arrays: the same numbers as on text, inside of a program.

They read tokens of one byte each; see `token_text`.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pgax.rewards.math import MARKER
from pgax.rewards.token_text import (
  NEWLINE,
  NONE,
  SPACES,
  answer_span,
  byte_characters,
  encoded,
  packed,
  text_of,
)
from pgax.types import Array, Example

_HASH = ord("#")


def final_answer_tokens(token_bytes: Sequence[bytes]) -> "FinalAnswerTokens":
  """Makes `rewards.final_answer` for tokens of the given bytes; for `Task.token_reward`."""
  return FinalAnswerTokens(byte_characters(token_bytes))


def spelled_tokens(token_bytes: Sequence[bytes]) -> "SpelledTokens":
  """Makes the reward of `spell_backward` for tokens of the given bytes."""
  return SpelledTokens(byte_characters(token_bytes))


# States of a number after the marker, as `rewards.math.final_answer` parses it.
_STATES = (
  *("start", "sign", "dollar", "one", "two", "three", "digits"),
  *("comma", "comma1", "comma2", "group", "period", "point", "decimals", "end", "space"),
  "invalid",
)
_WHOLE = ("one", "two", "three", "digits", "group")
_ACCEPTED = (*_WHOLE, "period", "decimals", "end", "space")


def _number_table() -> np.ndarray:
  """Next state `[states, 256]` of the automaton of numbers."""
  moves: dict[tuple[str, str], str] = {}

  def add(states: Sequence[str], characters: str, to: str) -> None:
    moves.update({(state, x): to for state in states for x in characters})

  digits, nonzero, spaces = "0123456789", "123456789", SPACES.decode()
  add(("start",), spaces, "start")
  add(("start",), "+-", "sign")
  add(("start", "sign"), "$", "dollar")
  add(("start", "sign", "dollar"), nonzero, "one")
  add(("start", "sign", "dollar"), "0", "digits")
  add(("start", "sign", "dollar"), ".", "point")
  for state, to in (("one", "two"), ("two", "three"), ("three", "digits")):
    add((state,), digits, to)
  add(("digits",), digits, "digits")
  add(("one", "two", "three", "group"), ",", "comma")
  for state, to in (("comma", "comma1"), ("comma1", "comma2"), ("comma2", "group")):
    add((state,), digits, to)
  add(_WHOLE, ".", "period")
  add(("period", "point", "decimals"), digits, "decimals")
  add(("decimals",), ".", "end")
  add(_ACCEPTED, spaces, "space")
  table = np.full((len(_STATES), 256), _STATES.index("invalid"), np.int32)
  for (state, character), to in moves.items():
    table[_STATES.index(state), ord(character)] = _STATES.index(to)
  return table


_TABLE = _number_table()
_IS_ACCEPTED = np.array([state in _ACCEPTED for state in _STATES])
_IS_WHOLE = np.array([s in (*_WHOLE, "comma1", "comma2") for s in _STATES])
_DECIMALS = _STATES.index("decimals")


class _Parse(NamedTuple):
  """The parse of a line after a marker, `[N, G]` each."""

  hashes: Array  # number of `#` that the text ends with
  marked: Array  # whether there was a marker
  ended: Array  # whether the line has ended
  state: Array  # state of the automaton
  matched: Array  # number of digits of the answer that the number begins with
  differs: Array  # whether the number is another one


@dataclasses.dataclass(frozen=True, eq=False)
class FinalAnswerTokens:
  """`rewards.final_answer` for answers that are whole numbers, at least 0.

  Attributes:
    characters: `[V]` int32 from `byte_characters`.
  """

  characters: np.ndarray

  def answer_tokens(self, example: Example) -> list[int]:
    """Returns the digits of an example's ground truth as tokens, without leading zeros.

    Raises:
      ValueError: if it is not a whole number.
    """
    text = example.ground_truth
    if not (text.isascii() and text.isdecimal()):
      raise ValueError(f"ground_truth is {text!r}; it must be a whole number, at least 0")
    return encoded(self.characters, text.lstrip("0"))

  def __call__(
    self, prompt_tokens: Array, tokens: Array, mask: Array, answer_tokens: Array
  ) -> Mapping[str, Array]:
    del prompt_tokens
    text = text_of(self.characters, tokens, mask)
    answer = text_of(self.characters, answer_tokens, answer_tokens > 0) - ord("0")
    length = jnp.sum(answer >= 0, axis=-1, keepdims=True)
    zeros, no = jnp.zeros(text.shape[:-1], jnp.int32), jnp.zeros(text.shape[:-1], bool)
    start = _Parse(zeros, no, no, zeros, zeros, no)
    read = functools.partial(_read_character, answer, length)
    parse, _ = jax.lax.scan(read, start, jnp.moveaxis(text, -1, 0))
    formatted = parse.marked & jnp.asarray(_IS_ACCEPTED)[parse.state]
    correct = formatted & ~parse.differs & (parse.matched == length)
    correct = correct.astype(jnp.float32)
    formatted = formatted.astype(jnp.float32)
    return {"reward": correct, "accuracy": correct, "format": formatted}


def _read_character(
  answer: Array, length: Array, parse: _Parse, character: Array
) -> tuple[_Parse, None]:
  """Reads the next character of every completion; -1 is padding."""
  digit = character - ord("0")
  state = jnp.asarray(_TABLE)[parse.state, jnp.maximum(character, 0)]
  whole = jnp.asarray(_IS_WHOLE)[state] & (digit >= 0) & (digit <= 9)
  leading = (parse.matched == 0) & (digit == 0)
  at = jnp.minimum(parse.matched, answer.shape[-1] - 1)
  expected = jnp.take_along_axis(answer, at, axis=-1)
  matches = whole & ~leading & (parse.matched < length) & (digit == expected)
  differs = whole & ~leading & ~matches
  differs |= (state == _DECIMALS) & (digit > 0) & (digit <= 9)
  differs |= (character == ord("-")) & (length > 0)
  following = _Parse(
    hashes=jnp.where(character == _HASH, parse.hashes + 1, 0),
    marked=parse.marked,
    ended=parse.ended | (character == NEWLINE),
    state=jnp.where(character == NEWLINE, parse.state, state),
    matched=parse.matched + matches,
    differs=parse.differs | differs,
  )
  # Once a line has ended, only another marker counts, which begins a new one.
  frozen = parse._replace(hashes=following.hashes)
  following = _where(parse.ended, frozen, following)
  zeros, no = jnp.zeros_like(parse.state), jnp.zeros_like(parse.marked)
  begun = _Parse(following.hashes, ~no, no, zeros, zeros, no)
  following = _where(following.hashes >= len(MARKER), begun, following)
  return _where(character == NONE, parse, following), None


def _where(condition: Array, yes: _Parse, no: _Parse) -> _Parse:
  return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)


@dataclasses.dataclass(frozen=True, eq=False)
class SpelledTokens:
  """The verifier of reasoning-gym's `spell_backward`, on `rewards.answers.tagged_answer`.

  Each correctly placed letter scores `1 / length`; a correct word with more text after it
  scores 0.8.
  Case is ignored.

  Attributes:
    characters: `[V]` int32 from `byte_characters`.
  """

  characters: np.ndarray

  def answer_tokens(self, example: Example) -> list[int]:
    """Returns the letters of an example's ground truth as tokens, in lower case."""
    return encoded(self.characters, example.ground_truth.lower())

  def __call__(
    self, prompt_tokens: Array, tokens: Array, mask: Array, answer_tokens: Array
  ) -> Mapping[str, Array]:
    del prompt_tokens
    text = packed(text_of(self.characters, tokens, mask))
    start, end = answer_span(text)
    answer = text_of(self.characters, answer_tokens, answer_tokens > 0)[:, None]
    width = answer.shape[-1]
    at = start[..., None] + jnp.arange(width)
    letters = jnp.take_along_axis(text, jnp.minimum(at, text.shape[-1] - 1), axis=-1)
    upper = (letters >= ord("A")) & (letters <= ord("Z"))
    letters = jnp.where(at < end[..., None], letters + 32 * upper, NONE)
    count = jnp.sum((letters == answer) & (answer >= 0), axis=-1)
    length = jnp.broadcast_to(jnp.sum(answer >= 0, axis=-1), count.shape)
    exact = (count == length) & (end - start == length)
    partial = jnp.asarray(_partial_rewards(width))[length, count]
    reward = jnp.where(exact, 1.0, partial).astype(jnp.float32)
    return {"reward": reward, "accuracy": exact.astype(jnp.float32)}


def _partial_rewards(width: int) -> np.ndarray:
  """Reward by length and right letters `[width + 1, width + 1]`, summed as text is."""
  table = np.zeros((width + 1, width + 1), np.float32)
  for length in range(1, width + 1):
    total = 0.0
    for count in range(1, length + 1):
      total += 1 / length
      table[length, count] = total - 0.2 if total == 1.0 else total
  return table
