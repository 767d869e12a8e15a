"""Parses and evaluates arithmetic expressions exactly, without Python's `eval`."""

import dataclasses
import re
from fractions import Fraction

_TOKEN = re.compile(r"[0-9]+|[-+*/()]|\s+|(.)", re.DOTALL)
# Far beyond any answer, yet small enough for any depth of parentheses and any number.
MAX_TOKENS, MAX_DIGITS = 100, 9


@dataclasses.dataclass(frozen=True)
class Expression:
  """A parsed arithmetic expression.

  Attributes:
    value: exact value; None if the expression divides by zero.
    numbers: all numbers of the expression, in order.
  """

  value: Fraction | None
  numbers: tuple[int, ...]


def parse_expression(text: str) -> Expression | None:
  """Parses an expression of nonnegative integers, `+ - * /` and parentheses.

  Operators have the usual precedence. `-` and `+` are binary only. `**`, `//` and products
  without `*` are not supported.

  Args:
    text: expression of at most 100 tokens, with at most 9 digits per number.

  Returns:
    An `Expression`, or None if the text is not such an expression.
  """
  tokens = []
  for match in _TOKEN.finditer(text):
    token = match.group()
    if match.group(1) or len(tokens) == MAX_TOKENS or len(token.strip()) > MAX_DIGITS:
      return None
    tokens += [token] * (not token.isspace())
  try:
    value, end = _sum(tokens, 0)
  except (IndexError, ValueError):  # the text ends early or has an unexpected token
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
    raise ValueError(f"a parenthesis is closed by {tokens[end]!r}")
  return value, end + 1


def _apply(operator: str, left: Fraction | None, right: Fraction | None) -> Fraction | None:
  if left is None or right is None:
    return None
  if operator == "/":
    return left / right if right else None
  return {"+": left + right, "-": left - right, "*": left * right}[operator]
