"""Arithmetic expressions as arrays of bytes, evaluated exactly inside of a program.

Values are fractions whose numerators and denominators are known by their remainders of
several primes, because 32 bits can't hold them. By the Chinese remainder theorem, a number
below the product of the primes is zero if all its remainders are.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pgax.rewards.expressions import MAX_DIGITS, MAX_TOKENS
from pgax.rewards.token_text import NONE, SPACES
from pgax.types import Array

# The largest primes whose remainders have products below 2^31.
PRIMES = np.array([46337, 46327, 46309, 46307, 46301, 46279], np.int32)
MODULUS = math.prod(map(int, PRIMES))
_PLUS, _MINUS, _TIMES, _OVER, _OPEN, _CLOSE = map(ord, "+-*/()")


class Expressions(NamedTuple):
  """Parsed expressions of at most `A` numbers.

  Attributes:
    valid: `[...]` bool, whether each text is an expression of at most `A` numbers.
    count: `[...]` int32 number of its numbers.
    numbers: `[..., A]` int32 numbers in order, right-padded with 0.
    operators: `[..., A - 1]` int32 characters between them.
    ranks: `[..., A - 1]` int32, higher where an operator is applied earlier; -1 for none.
  """

  valid: Array
  count: Array
  numbers: Array
  operators: Array
  ranks: Array


class _Reading(NamedTuple):
  """State of the parsers after some characters, `[...]` each."""

  parsed: Expressions
  complete: Array  # whether the text so far ends with a number or `)`
  digits: Array  # number of digits that it ends with
  depth: Array  # number of open parentheses
  tokens: Array  # number of tokens


def parse_expressions(text: Array, limit: int) -> Expressions:
  """Parses expressions, as `expressions.parse_expression` does.

  Args:
    text: `[..., T]` int32 bytes; -1 for no character.
    limit: largest number of numbers, `A`, at least 1.

  Returns:
    `Expressions`.
  """
  shape = text.shape[:-1]
  zeros, no = jnp.zeros(shape, jnp.int32), jnp.zeros(shape, bool)
  numbers = jnp.zeros((*shape, limit), jnp.int32)
  between = numbers[..., 1:]
  parsed = Expressions(~no, zeros, numbers, between, between - 1)
  start = _Reading(parsed, no, zeros, zeros, zeros)
  read, _ = jax.lax.scan(_read_character, start, jnp.moveaxis(text, -1, 0))
  valid = read.parsed.valid & read.complete & (read.depth == 0)
  valid &= read.tokens <= MAX_TOKENS
  return read.parsed._replace(valid=valid & (read.parsed.count <= limit))


def _read_character(read: _Reading, character: Array) -> tuple[_Reading, None]:
  """Reads the next character of every text."""
  parsed, limit = read.parsed, read.parsed.numbers.shape[-1]
  is_space = jnp.isin(character, jnp.array(list(SPACES)))
  is_digit = (character >= ord("0")) & (character <= ord("9"))
  is_product = (character == _TIMES) | (character == _OVER)
  is_operator = is_product | (character == _PLUS) | (character == _MINUS)
  is_open, is_close = character == _OPEN, character == _CLOSE
  continues = is_digit & (read.digits > 0)
  begins = (is_digit & ~continues) | is_open
  ends = is_operator | is_close
  valid = is_space | (continues & (read.digits < MAX_DIGITS))
  valid |= (begins & ~read.complete) | (ends & read.complete)
  depth = read.depth + is_open - is_close
  count = parsed.count + (is_digit & ~continues)
  last = jax.nn.one_hot(count - 1, limit, dtype=bool)
  number = 10 * parsed.numbers + (character - ord("0"))[..., None]
  here = is_operator[..., None] & last[..., : limit - 1]
  rank = (2 * depth + is_product)[..., None]
  following = _Reading(
    Expressions(
      valid=parsed.valid & valid & (depth >= 0),
      count=count,
      numbers=jnp.where(is_digit[..., None] & last, number, parsed.numbers),
      operators=jnp.where(here, character[..., None], parsed.operators),
      ranks=jnp.where(here, rank, parsed.ranks),
    ),
    complete=jnp.where(is_space, read.complete, is_digit | is_close),
    digits=jnp.where(is_digit, read.digits + 1, 0),
    depth=depth,
    tokens=read.tokens + ~(is_space | continues),
  )

  def keep(before: Array, after: Array) -> Array:
    added = tuple(range(character.ndim, after.ndim))
    return jnp.where(jnp.expand_dims(character == NONE, added), before, after)

  return jax.tree.map(keep, read, following), None


def equals(parsed: Expressions, target: Array) -> Array:
  """Finds the expressions whose value is a given number.

  It is exact if the product of the numbers, `target + 1` and `2 ** A` is below `MODULUS`.

  Args:
    parsed: expressions that are valid; others give any result.
    target: `[...]` int32 numbers, at least 0.

  Returns:
    `[...]` bool; false for an expression that divides by zero.
  """
  above = parsed.numbers[..., None] % PRIMES
  terms = _Terms(above, jnp.ones_like(above), parsed.operators, parsed.ranks)
  for _ in range(parsed.numbers.shape[-1] - 1):
    terms = _apply_first(terms)
  above, below = terms.above[..., 0, :], terms.below[..., 0, :]
  expected = (target[..., None] % PRIMES) * below % PRIMES
  return jnp.all(above == expected, axis=-1) & jnp.any(below > 0, axis=-1)


class _Terms(NamedTuple):
  """Partly evaluated expressions: `n` fractions, and the operators between them."""

  above: Array  # [..., n, primes] remainders of numerators
  below: Array  # [..., n, primes] remainders of denominators; both are 0 after 1 / 0
  operators: Array  # [..., n - 1]
  ranks: Array  # [..., n - 1]


def _apply_first(terms: _Terms) -> _Terms:
  """Applies the operator of the highest rank, of several the first, to its neighbors.

  What is not an operator ranks below them, and leaves its left neighbor as it is.
  """
  at = jnp.argmax(terms.ranks, axis=-1)[..., None]
  index = jnp.arange(terms.ranks.shape[-1])
  fractions = terms.above, terms.below
  left, right = (
    [_take(x, at + neighbor)[..., 0, :] for x in fractions] for neighbor in (0, 1)
  )
  result = _apply(jnp.take_along_axis(terms.operators, at, axis=-1), *left, *right)
  above, below = (
    jnp.where((index == at)[..., None], x[..., None, :], _take(y, index + (index > at)))
    for x, y in zip(result, fractions, strict=True)
  )
  others = index[:-1] + (index[:-1] >= at)
  operators = jnp.take_along_axis(terms.operators, others, axis=-1)
  ranks = jnp.take_along_axis(terms.ranks, others, axis=-1)
  return _Terms(above, below, operators, ranks)


def _take(fractions: Array, indices: Array) -> Array:
  return jnp.take_along_axis(fractions, indices[..., None], axis=-2)


def _apply(operator: Array, a: Array, b: Array, c: Array, d: Array) -> tuple[Array, Array]:
  """Remainders of `a / b` and `c / d`, joined by an operator."""
  ad, bc, bd = a * d % PRIMES, b * c % PRIMES, b * d % PRIMES
  is_division = operator == _OVER
  divisible = jnp.any(c > 0, axis=-1, keepdims=True)
  above = jnp.select(
    [operator == _PLUS, operator == _MINUS, operator == _TIMES, is_division],
    [ad + bc, ad - bc, a * c, jnp.where(divisible, ad, 0)],
    a,
  )
  below = jnp.select([is_division, operator > 0], [bc, bd], b)
  return above % PRIMES, below
