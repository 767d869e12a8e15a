"""Arithmetic expressions, with Python as the reference."""

import random
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgax.rewards.expressions import Expression, parse_expression


def expression(rng, depth):
  """Returns a random expression, and the same expression of fractions for Python."""
  if depth == 0 or rng.random() < 0.2:
    number = rng.randrange(100)
    return str(number), f"Fraction({number})"
  left, right = expression(rng, depth - 1), expression(rng, depth - 1)
  operator, space = rng.choice("+-*/"), " " * rng.randrange(2)
  bare = [f"{a}{space}{operator}{space}{b}" for a, b in zip(left, right, strict=True)]
  return [f"({x})" for x in bare] if rng.random() < 0.5 else bare


@given(st.integers(0, 10**6))
def test_values_equal_those_of_python(seed):
  text, python = expression(random.Random(seed), 4)
  try:
    value = eval(python, {"Fraction": Fraction})
  except ZeroDivisionError:
    value = None
  parsed = parse_expression(text)
  assert parsed.value == value
  assert len(parsed.numbers) == python.count("Fraction")


@given(st.text(alphabet="0123456789+-*/() .e", max_size=12))
def test_invalid_python_is_rejected(text):
  parsed = parse_expression(text)
  if parsed is not None:
    assert all(number >= 0 for number in parsed.numbers)
    eval(text.replace("/", "+").replace(" 0", " ").replace("0", "1"))  # it parses


@pytest.mark.parametrize(
  "text",
  [
    "",
    "-2",
    "2--3",
    "2**3",
    "2//3",
    "2(3)",
    "2 3",
    "(2",
    "2)",
    "()",
    "2+",
    "+2",
    "2.5",
    "1e3",
    "2=2",
    "x",
    "__import__('os')",
    "\u0662",  # a digit, but not an ASCII one
    "1" * 10,
    "1+" * 50 + "1",
    "(" * 10**5,
  ],
)
def test_unsupported_text_is_rejected(text):
  assert parse_expression(text) is None


def test_division_is_exact_and_division_by_zero_has_no_value():
  assert parse_expression("7/(2-2)") == Expression(None, (7, 2, 2))
  assert parse_expression("1+7/0*0").value is None
  assert parse_expression("8/3*3").value == 8  # exactly
