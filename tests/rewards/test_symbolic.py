"""Answers as mathematics: where they stand, what equals them, and what only looks so."""

import builtins
import importlib.util
import signal
import threading
import time
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgax.rewards import Math, R1Zero
from pgax.rewards.answers import boxed, exact_number, extract_answer


@pytest.mark.parametrize(
  ("text", "answer"),
  [
    ("so \\boxed{4}", "4"),
    ("\\boxed{1} then \\boxed{\\frac{1}{2}}", "\\frac{1}{2}"),
    ("\\boxed{\\{1,2\\}}", "\\{1,2\\}"),
    ("\\fboxed{1} \\boxed{2", "2"),  # never closed: the last number is what is left
    ("\\fbox{1} 2", "1"),
    ("\\boxed{\\boxed{a}b} \\boxed{2", "a"),
    ("2+2 #### 4\nmore 5", "4"),
    ("<answer>7</answer> 8", "7"),
    ("<answer>it is \\boxed{7}</answer> \\boxed{8}", "7"),
    ("<answer>1</answer><answer>2</answer>", "2"),
    ("#### 1 \\boxed{2}", "2"),
    ("I say 3, then -4.", "-4"),
    ("from 7-4", "7-4"),
    ("it is 1,234.50", "1,234.50"),
    ("version2", None),
    ("it is 42, I think", "42"),
    ("I tried 3, but it is .5", ".5"),
    ("not 3 but \u22125", "-5"),
    ("it is 1.5e-3", "1.5e-3"),
    ("the pair (1,2)", "1,2"),
    ("the pair (1,-2)", "-2"),
    ("it is 3.5kg or 1,2x", None),
    ("in <answer> tags: <answer>5</answer> </answer>, not <answer>", "5"),
    ("</answer><answer>5", "5"),
    ("nothing", None),
    ("<answer> </answer> 4", None),
    ("", None),
  ],
)
def test_where_an_answer_stands(text, answer):
  assert extract_answer(text) == answer


def test_boxes_are_balanced():
  assert boxed("\\boxed{a{b}c} d") == "a{b}c"
  assert boxed("\\boxed {a}") == "a"
  assert boxed("\\boxed{a") is None


def test_a_long_text_is_read_once():
  # Each of these took seconds and more where the time grew with the square of the length.
  start = time.process_time()
  assert boxed("\\boxed{" * 20_000) is None
  assert extract_answer("<answer>" * 50_000) is None
  assert extract_answer("1," * 50_000 + "1x") is None
  assert exact_number("1" + " " * 100_000 + "2") is None
  assert time.process_time() - start < 10


@given(st.fractions(), st.booleans())
def test_numbers_are_exact(value, latex):
  sign = "-" if value < 0 else ""
  plain = f"{sign}{abs(value.numerator)}/{value.denominator}"
  text = f"{sign}\\frac{{{abs(value.numerator)}}}{{{value.denominator}}}"
  assert exact_number(text if latex else plain) == value


@pytest.mark.parametrize(
  ("text", "value"),
  [
    ("$1,234.50", Fraction(2469, 2)),
    ("-3.", Fraction(-3)),
    ("\\(5\\)", Fraction(5)),
    (".5", Fraction(1, 2)),
    ("1,23", None),
    ("1/0", None),
    ("", None),
    ("-", None),
    ("5 apples", None),
    ("9" * 5000, None),
    ("\u22125", Fraction(-5)),
    ("1.5e3", Fraction(1500)),
    ("-1E-05", Fraction(-1, 10**5)),
    ("1e3/4", Fraction(250)),
    ("2e + 3", None),  # with Euler's number
    ("e3", None),
    ("1e999999999", None),
  ],
)
def test_what_is_a_number(text, value):
  assert exact_number(text) == value


RIGHT = [
  ("1/2", "0.5"),
  ("1/3", "0.333333"),
  ("\\frac{\\sqrt{2}}{2}", "1/\\sqrt{2}"),
  ("x+1", "1 + x"),
  ("(1,2)", "(1, 2)"),
  ("\\{1,2\\}", "\\{2,1\\}"),
  ("1,234", "1234.00"),
  ("\\frac12", "0.5"),
  ("1<x<2", "(1,2)"),
  ("blue", "blue"),
  ("-5", "\u22125"),
  ("1e-05", "0.00001"),
]
WRONG = [
  ("1/3", "0.33"),
  ("5", "5, 6"),
  ("5", "5 \\text{ or } 6"),
  ("5", "6 or 5"),
  ("5", "5}x{"),
  ("5", "5} \\boxed{5"),
  ("12", "12 or 13"),
  ("x+1", "x-1"),
  ("(1,2)", "1<x<2"),  # gold first: the other way round it is right
  ("540", "5401"),
  ("0.1", "0.10000001"),
  ("12", "1,2"),
  ("5", "\u22125"),
]


@pytest.mark.parametrize(("gold", "answer"), RIGHT)
def test_equal_answers(gold, answer):
  told = Math()("", f"so <answer>{answer}</answer>", gold)
  assert told == {"reward": 1.0, "accuracy": 1.0, "format": 1.0}
  assert R1Zero()("", f"so</think> <answer>{answer}</answer>", gold)["reward"] == 1.0


@pytest.mark.parametrize(("gold", "answer"), WRONG)
def test_other_answers(gold, answer):
  assert Math()("", f"so <answer>{answer}</answer>", gold)["reward"] == 0.0
  assert R1Zero()("", f"so</think> <answer>{answer}</answer>", gold)["reward"] == 0.0


def test_numbers_need_no_library(monkeypatch):
  real = builtins.__import__

  def refusing(name, *rest):
    assert not name.startswith("math_verify")
    return real(name, *rest)

  monkeypatch.setattr(builtins, "__import__", refusing)
  for answer, right in (("#### 72", 1.0), ("\\boxed{71}", 0.0), ("72.5", 0.0), ("?", 0.0)):
    assert Math()("", answer, "72")["reward"] == right
  assert Math(symbolic=False)("", "\\boxed{x+1}", "1+x")["reward"] == 0.0
  for kind in (Math, R1Zero):
    text = "so</think> <answer>\\fbox{\u22125}</answer>"
    assert kind(symbolic=False)("", text, "-5")["reward"] == 1.0


def test_a_missing_library_is_said_at_once(monkeypatch):
  monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
  for kind in (Math, R1Zero):
    with pytest.raises(ValueError, match=r"pip install 'pgax\[math\]', or set symbolic"):
      kind()
    kind(symbolic=False)


def test_no_alarm_is_set_and_any_thread_will_do(monkeypatch):
  def alarm(*_):
    raise AssertionError("signal.alarm was called")

  monkeypatch.setattr(signal, "alarm", alarm)
  found = []

  def work():
    found.append(Math()("", "\\boxed{1+x}", "x+1")["reward"])

  thread = threading.Thread(target=work)
  thread.start()
  thread.join()
  assert found == [1.0]


@given(st.text())
def test_any_text_gets_a_score(text):
  assert Math(symbolic=False)("", text, "5")["reward"] in (0.0, 1.0)
  assert R1Zero(symbolic=False)("", text, "5")["reward"] in (0.0, 1.0)


def test_ground_truth_must_be_an_answer():
  with pytest.raises(ValueError, match="ground truth is ''; it must be"):
    Math()("", "5", " ")


@pytest.mark.parametrize(
  ("text", "format_reward", "reward"),
  [
    ("2+2</think> <answer>4</answer>", 1.0, 1.0),
    ("2+2</think> <answer>\\boxed{4}</answer>", 1.0, 1.0),
    ("2+2</think> <answer>\\boxed{4</answer>", 1.0, 0.0),
    ("2+2</think> <answer>5</answer>", 1.0, 0.0),
    ("2+2</think> <answer></answer>", 1.0, 0.0),
    ("2+2</think><answer>4</answer>", 0.0, 0.0),
    ("2+2</think> <answer>4", 0.0, 0.0),
    ("<answer>4</answer>", 0.0, 0.0),
    ("4", 0.0, 0.0),
  ],
)
def test_r1_zero(text, format_reward, reward):
  assert R1Zero()("", text, "4") == {
    "reward": reward,
    "format_reward": format_reward,
    "answer_reward": reward,
    "accuracy": reward,
  }


@pytest.mark.parametrize(
  ("text", "number"),
  [
    ("1 234 567", 1234567),
    ("- 3", -3),
    ("2 / 4", Fraction(1, 2)),
    ("1 1/2", None),
    ("1 2", None),
    ("12 34", None),
  ],
)
def test_white_space_parts_numbers_but_for_groups_of_three(text, number):
  assert exact_number(text) == number
