"""The reward of countdown as a function of arrays."""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import jax.numpy as jnp
import numpy as np

from pgax.errors import check_each
from pgax.rewards.token_expressions import MODULUS, equals, parse_expressions
from pgax.rewards.token_text import NONE, answer_span, byte_characters, packed, text_of
from pgax.types import Array, Example

_LARGEST = 2**31 - 1


def countdown_tokens(
  token_bytes: Sequence[bytes], use_all: bool = True, format_score: float = 0.0
) -> "CountdownTokens":
  """Makes `Countdown(use_all, format_score)` for tokens of the given bytes."""
  return CountdownTokens(byte_characters(token_bytes), use_all, format_score)


@dataclasses.dataclass(frozen=True, eq=False)
class CountdownTokens:
  """`Countdown` for positive numbers and targets, exactly.

  Attributes:
    characters: `[V]` int32 from `byte_characters`.
    use_all: see `Countdown`.
    format_score: see `Countdown`.
  """

  characters: np.ndarray
  use_all: bool = True
  format_score: float = 0.0

  def __post_init__(self):
    check_each(self, ["format_score"], math.isfinite, "finite")

  def answer_tokens(self, example: Example) -> list[int]:
    """Returns the target of an example and then its numbers.

    Raises:
      ValueError: if there are no numbers, or if any is not positive, or too large for exact
        arithmetic.
    """
    given = example.metadata.get("numbers", ())
    target, numbers = int(example.ground_truth), list(map(int, given))
    if not numbers:
      raise ValueError("the metadata has no 'numbers', or none in it")
    if min(target, *numbers) < 1:
      raise ValueError(f"target {target} and numbers {numbers} must all be positive")
    product = 2 ** len(numbers) * (target + 1) * math.prod(numbers)
    if max(target, *numbers) > _LARGEST or product >= MODULUS:
      raise ValueError(
        f"target {target} and numbers {numbers} are too large: a reward of tokens can "
        f"compute with numbers up to {_LARGEST}, and the product of all must be below "
        f"{MODULUS / 2 ** len(numbers):.1e}"
      )
    return [target, *numbers]

  def __call__(
    self, prompt_tokens: Array, tokens: Array, mask: Array, answer_tokens: Array
  ) -> Mapping[str, Array]:
    del prompt_tokens
    text = packed(text_of(self.characters, tokens, mask))
    start, end = answer_span(text)
    index = jnp.arange(text.shape[-1])
    inside = (index >= start[..., None]) & (index < end[..., None])
    target, given = answer_tokens[:, :1], answer_tokens[:, None, 1:]
    parsed = parse_expressions(jnp.where(inside, text, NONE), given.shape[-1])
    formatted = parsed.valid & _uses(parsed.numbers, parsed.count, given, self.use_all)
    correct = formatted & equals(parsed, jnp.broadcast_to(target, formatted.shape))
    partial = jnp.where(formatted, self.format_score, 0.0)
    return {
      "reward": jnp.where(correct, 1.0, partial).astype(jnp.float32),
      "accuracy": correct.astype(jnp.float32),
      "format": formatted.astype(jnp.float32),
    }


def _uses(numbers: Array, count: Array, given: Array, use_all: bool) -> Array:
  """Checks that each of the first `count` numbers is used at most as often as given."""
  real = jnp.arange(numbers.shape[-1]) < count[..., None]
  same = numbers[..., None, :] == numbers[..., None]
  used = jnp.sum(same & real[..., None, :], axis=-1)
  given = given[..., None, :]  # 0 is padding, but also a number of an expression
  available = jnp.sum((numbers[..., None] == given) & (given > 0), axis=-1)
  fits = jnp.all(~real | (used <= available), axis=-1)
  if use_all:
    fits &= count == jnp.sum(given > 0, axis=-1)[..., 0]
  return fits
