"""Texts as arrays of bytes, for rewards inside of a program.

They read tokens of one byte each, and -1 is no character: a special token, which text
omits, or a masked one. Text is compared byte by byte: characters beyond ASCII are neither
digits nor white space here, whereas text rewards know those of other scripts.
"""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from pgax.rewards.math import MARKER
from pgax.types import Array

NONE = -1
SPACES = b" \t\n\r\x0b\x0c\x1c\x1d\x1e\x1f"
NEWLINE = ord("\n")


def byte_characters(token_bytes: Sequence[bytes]) -> np.ndarray:
  """Maps tokens of one byte to it.

  Args:
    token_bytes: bytes of all `V` tokens, empty for special tokens.

  Returns:
    `[V]` int32, -1 for tokens without text.

  Raises:
    ValueError: if a token has several bytes.
  """
  for token, spelling in enumerate(token_bytes):
    if len(spelling) > 1:
      raise ValueError(
        f"token {token} is {spelling!r}; a reward of tokens needs a tokenizer whose tokens "
        "are single bytes, such as data.byte_tokenizer"
      )
  return np.array([x[0] if x else NONE for x in token_bytes], np.int32)


def encoded(characters: np.ndarray, text: str) -> list[int]:
  """Encodes a text as tokens, one for each byte.

  Args:
    characters: `[V]` int32 from `byte_characters`.
    text: text to encode.

  Returns:
    The tokens.
  """
  return [int(np.flatnonzero(characters == byte)[0]) for byte in text.encode()]


def text_of(characters: np.ndarray, tokens: Array, mask: Array) -> Array:
  """Reads tokens as text.

  Args:
    characters: `[V]` int32 from `byte_characters`.
    tokens: `[..., T]` int32 tokens.
    mask: `[..., T]` bool, which of them to read.

  Returns:
    `[..., T]` int32 bytes; -1 for special tokens and where masked.
  """
  return jnp.where(mask, jnp.asarray(characters)[tokens], NONE)


def packed(text: Array) -> Array:
  """Moves the characters of `[..., T]` texts to their beginnings."""
  order = jnp.argsort(text == NONE, axis=-1, stable=True)
  return jnp.take_along_axis(text, order, axis=-1)


def _occurrences(text: Array, word: str) -> Array:
  """Marks the characters at which a word begins, `[..., T]` bool."""
  found = jnp.ones(text.shape, bool)
  for offset, byte in enumerate(word.encode()):
    shifted = jnp.roll(text, -offset, axis=-1) == byte
    found &= shifted & (jnp.arange(text.shape[-1]) + offset < text.shape[-1])
  return found


def answer_span(text: Array) -> tuple[Array, Array]:
  """Finds the answers in texts, as `answers.tagged_answer` does.

  Args:
    text: `[..., T]` int32 packed texts.

  Returns:
    `[...]` int32 start and end of each answer, without surrounding white space.
  """
  index, limit = jnp.arange(text.shape[-1]), text.shape[-1]
  length = jnp.sum(text != NONE, axis=-1)

  def last(found: Array) -> Array:
    return jnp.max(jnp.where(found, index, -1), axis=-1)

  def first(found: Array, otherwise: Array | int) -> Array:
    return jnp.minimum(jnp.min(jnp.where(found, index, limit), axis=-1), otherwise)

  opens, closes = _occurrences(text, "<answer>"), _occurrences(text, "</answer>")
  before = index + len("<answer>") <= last(closes)[..., None]
  opened = last(opens & before)
  inside = opened + len("<answer>")
  closed = first(closes & (index >= inside[..., None]), limit)
  marked = last(_occurrences(text, MARKER))
  after = marked + len(MARKER)
  line_end = first((text == NEWLINE) & (index >= after[..., None]), length)
  plain = jnp.zeros_like(length), length
  start, end = (
    jnp.where(opened >= 0, tag, jnp.where(marked >= 0, line, whole))
    for tag, line, whole in zip((inside, closed), (after, line_end), plain, strict=True)
  )
  return _stripped(text, start, end)


def _stripped(text: Array, start: Array, end: Array) -> tuple[Array, Array]:
  """Start and end without surrounding white space."""
  index = jnp.arange(text.shape[-1])
  inside = (index >= start[..., None]) & (index < end[..., None])
  visible = inside & ~jnp.isin(text, jnp.array(list(SPACES)))
  first = jnp.min(jnp.where(visible, index, text.shape[-1]), axis=-1)
  last = jnp.max(jnp.where(visible, index, -1), axis=-1)
  nothing = last < 0
  return jnp.where(nothing, start, first), jnp.where(nothing, start, last + 1)
