"""Arithmetic expressions: read and computed exactly, without Python's `eval`."""

import dataclasses
import re
from fractions import Fraction

_TOKEN = re.compile(r"[0-9]+|[-+*/()]|\s+|(.)", re.DOTALL)
# Far beyond any answer, and small enough for every number and every depth of brackets.
_MAX_TOKENS, _MAX_DIGITS = 100, 9


@dataclasses.dataclass(frozen=True)
class Expression:
  """What is known of an expression.

  Attributes:
    value: its exact value; None where it divides by zero.
    numbers: all numbers in it, in their order.
  """

  value: Fraction | None
  numbers: tuple[int, ...]


def parse_expression(text: str) -> Expression | None:
  """Reads an expression of whole numbers, `+ - * /` and brackets.

  The usual precedence; `-` and `+` stand between two terms only, and there is no `**`, no
  `//` and no product without `*`.

  Args:
    text: the whole expression, of at most 100 tokens and 9 digits a number.

  Returns:
    An `Expression`, or None if the text is none.
  """
  tokens = []
  for match in _TOKEN.finditer(text):
    token = match.group()
    if match.group(1) or len(tokens) == _MAX_TOKENS or len(token.strip()) > _MAX_DIGITS:
      return None
    tokens += [token] * (not token.isspace())
  try:
    value, end = _sum(tokens, 0)
  except (IndexError, ValueError):  # it ended too early, or went on otherwise
    return None
  if end != len(tokens):
    return None
  return Expression(value, tuple(int(token) for token in tokens if token.isdigit()))


def _sum(tokens: list[str], start: int) -> tuple[Fraction | None, int]:
  value, end = _product(tokens, start)
  while end < len(tokens) and tokens[end] in "+-":
    operator = tokens[end]
    right, end = _product(tokens, end + 1)
    value = _apply(operator, value, right)
  return value, end


def _product(tokens: list[str], start: int) -> tuple[Fraction | None, int]:
  value, end = _atom(tokens, start)
  while end < len(tokens) and tokens[end] in "*/":
    operator = tokens[end]
    right, end = _atom(tokens, end + 1)
    value = _apply(operator, value, right)
  return value, end


def _atom(tokens: list[str], start: int) -> tuple[Fraction | None, int]:
  token = tokens[start]
  if token != "(":
    return Fraction(int(token)), start + 1
  value, end = _sum(tokens, start + 1)
  if tokens[end] != ")":
    raise ValueError(f"a bracket is closed by {tokens[end]!r}")
  return value, end + 1


def _apply(operator: str, left: Fraction | None, right: Fraction | None) -> Fraction | None:
  if left is None or right is None:
    return None
  if operator == "/":
    return left / right if right else None
  return {"+": left + right, "-": left - right, "*": left * right}[operator]
