"""The verifier of countdown, and the expressions it reads: Python is the reference."""

import random
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgax.rewards import Countdown
from pgax.rewards.expressions import Expression, parse_expression

GIVEN = {"numbers": (2, 3, 7)}


def expression(rng, depth):
  """A random expression as text, and as text of fractions for Python."""
  if depth == 0 or rng.random() < 0.2:
    number = rng.randrange(100)
    return str(number), f"Fraction({number})"
  left, right = expression(rng, depth - 1), expression(rng, depth - 1)
  operator, space = rng.choice("+-*/"), " " * rng.randrange(2)
  bare = [f"{a}{space}{operator}{space}{b}" for a, b in zip(left, right, strict=True)]
  return [f"({x})" for x in bare] if rng.random() < 0.5 else bare


@given(st.integers(0, 10**6))
def test_values_are_those_of_python(seed):
  text, python = expression(random.Random(seed), 4)
  try:
    value = eval(python, {"Fraction": Fraction})
  except ZeroDivisionError:
    value = None
  found = parse_expression(text)
  assert found.value == value
  assert len(found.numbers) == python.count("Fraction")


@given(st.text(alphabet="0123456789+-*/() .e", max_size=12))
def test_what_python_refuses_is_refused(text):
  found = parse_expression(text)
  if found is not None:
    assert all(number >= 0 for number in found.numbers)
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
    "\u0662",  # a digit, and none of ours
    "1" * 10,
    "1+" * 50 + "1",
    "(" * 10**5,
  ],
)
def test_what_is_no_expression(text):
  assert parse_expression(text) is None


def test_division():
  assert parse_expression("7/(2-2)") == Expression(None, (7, 2, 2))
  assert parse_expression("1+7/0*0").value is None
  assert parse_expression("8/3*3").value == 8  # exactly


@pytest.mark.parametrize(
  ("completion", "reward", "formatted"),
  [
    ("2*7+3", 1, 1),
    ("so (3+2*7) is it? #### 3+7*2\nyes", 1, 1),
    ("<answer> 3 + 7 * 2 </answer> #### 1", 1, 1),
    ("<answer>2</answer> <answer>3+(2*7)</answer>", 1, 1),
    ("in <answer> tags <answer>3+(2*7)</answer>", 1, 1),
    ("7+3+2", 0, 1),
    ("17", 0, 0),
    ("2*7+3=17", 0, 0),
    ("2*7+3+0", 0, 0),
    ("2*7", 0, 0),
    ("2*7+3*2/2", 0, 0),
    ("2*7+3 #### no", 0, 0),
    ("7/(3-3)*2", 0, 0),
    ("", 0, 0),
  ],
)
def test_each_number_once(completion, reward, formatted):
  told = Countdown()("", completion, "17", GIVEN)
  assert told == {"reward": reward, "accuracy": reward, "format": formatted}


def test_at_most_once_and_a_reward_for_the_format():
  assert Countdown()("", "2*7", "14", GIVEN)["reward"] == 0
  assert Countdown(use_all=False)("", "2*7", "14", GIVEN)["reward"] == 1
  assert Countdown(use_all=False)("", "7+7", "14", GIVEN)["reward"] == 0
  told = Countdown(format_score=0.1)("", "2+3+7", "17", GIVEN)
  assert told == {"reward": 0.1, "accuracy": 0.0, "format": 1.0}
  assert Countdown()("", "6/(2-2)", "3", {"numbers": [6, 2, 2]})["format"] == 1
  with pytest.raises(ValueError, match="format_score is inf"):
    Countdown(format_score=float("inf"))
  with pytest.raises(ValueError, match=r"the metadata has the keys .* no 'numbers'"):
    Countdown()("", "2", "2", {})
