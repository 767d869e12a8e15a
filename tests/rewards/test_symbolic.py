"""Mathematical answers: extraction, equality, and text that only looks equal."""

import builtins
import importlib.util
import signal
import sys
import threading
import time
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgax.rewards import Math, R1Zero, equality
from pgax.rewards.answers import boxed, exact_number, extract_answer


@pytest.mark.parametrize(
  ("text", "answer"),
  [
    ("so \\boxed{4}", "4"),
    ("\\boxed{1} and \\boxed{2}", "1, 2"),
    ("$a = \\boxed{1}$ and $b = \\boxed{2}$", "1, 2"),
    ("\\boxed{1} red, \\boxed{2} \\quad \\text{or} \\boxed{3}", "1, 2, 3"),
    ("\\boxed{1} and " + "x" * 99 + "\\boxed{2}", "2"),
    ("\\boxed{1}. The final answer is $2$. I hope it is correct.", "$2$."),
    ("The final answer is \\boxed{1}.", "1"),
    ("\\boxed{1} then \\boxed{\\frac{1}{2}}", "\\frac{1}{2}"),
    ("\\boxed{\\{1,2\\}}", "\\{1,2\\}"),
    ("\\fboxed{1} \\boxed{2", "2"),  # never closed, so the last number is the answer
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
def test_extract_answer(text, answer):
  assert extract_answer(text) == answer


def test_boxes_have_balanced_braces():
  assert boxed("\\boxed{a{b}c} d") == "a{b}c"
  assert boxed("\\boxed {a}") == "a"
  assert boxed("\\boxed{a") is None


def test_long_text_takes_linear_time():
  # Each of these would take seconds or more in quadratic time.
  start = time.process_time()
  assert boxed("\\boxed{" * 20_000) is None
  assert extract_answer("<answer>" * 50_000) is None
  assert extract_answer("1," * 50_000 + "1x") is None
  assert exact_number("1" + " " * 100_000 + "2") is None
  assert time.process_time() - start < 10


@given(st.fractions(), st.booleans())
def test_fractions_are_parsed_exactly(value, latex):
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
def test_exact_number(text, value):
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
  ("12.5", "12,5"),
  ("1234.5", "1.234,5"),
  ("0,25", "0.25"),
  ("7", "Answer $ 7 $"),
  ("$7$", "The answer is: $$7$$."),
  ("7", "The largest $n$ is 7."),
  ("7", "not 6 but 7"),
  ("x > 2", "Therefore $x \\gt 2$ is what we need."),
  ("(3, 4)", "So the pair $(a, b)$ is $(3, 4)$."),
  ("\\{3, 4\\}", "$3$ and $4$"),
  ("a = 3, b = 4", "\\boxed{a = 3} \\quad \\text{and} \\quad \\boxed{b = 4}"),
  ("3, 4", "\\boxed{4} or \\boxed{3}"),
  ("\\boxed{3}, \\boxed{4}", "\\{3, 4\\}"),
  (
    "\\begin{pmatrix} 4 & 4 \\end{pmatrix}",
    "$\\begin{pmatrix} 1 & 2 \\end{pmatrix} + \\begin{pmatrix} 3 & 2 \\end{pmatrix}$",
  ),
  ("[1, 2)", "$x \\in [1, 2)$"),
  ("25\\%", "25%"),
  ("25", "Therefore, the price grows by 25%."),
  ("x = 5", "$x = 2 + 3 = 5$"),
  *[("5", text) for text in ("= 5", "$= 5$", "**5**", "**$5.00**", "**Five is 5.**")],
  ("5", "The answer is **5** apples."),
  ("5", "\\boxed{\\text{5 apples}}"),
  ("\\text{blue}", "**blue**"),
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
  ("(1,2)", "1<x<2"),  # equal in the other order
  ("540", "5401"),
  ("0.1", "0.10000001"),
  ("12", "1,2"),
  ("5", "\u22125"),
]
# Answers that offer several values, say nothing, or say something else with the number.
DISHONEST = [
  *[("4", f"3{joint}4") for joint in (", ", " or ", " and ", "; ", "\n", " maybe ", "..")],
  *[("3", text) for text in ("1, 2, 3, 4", "$1$ $2$ $3$", "$1$, $2$, $3$", "\\pm 3")],
  *[("4", f"\\boxed{{3}}{joint}\\boxed{{4}}") for joint in (" or ", ", ", " and ", "")],
  *[("4", text) for text in ("[3,4]", "\\{3,4\\}", "(3,4)", "3 < x < 5", "x=3, x=4")],
  ("4", "\\begin{cases}3\\\\4\\end{cases}"),
  ("4", "The answer is 3. The answer is 4."),
  ("4", "Therefore 3. Therefore 4."),
  ("4", "The final answer is 3. The final answer is 4."),
  ("6", "five and 6"),
  *[("5", text) for text in ("not 5", "5 or more", "at least 5", "5 million", "minus 5")],
  *[("5", text) for text in ("**not 5**", "**4** or **5**", "**-5**", "= 4 = 5", "!= 5")],
  *[("15", text) for text in ("1**5**", "**1**5", "=", "****", "**15", "\\text{not 15}")],
  *[("5", text) for text in ("x", "x=x", "any number", "?", "5?", ".*", "*", "answer")],
  *[("5", text) for text in ("\\emptyset", "\\{\\}", "\\infty", "nan", "\\frac{0}{0}")],
  *[
    ("5", text) for text in ("x \\in \\mathbb{R}", "\\mathbb{R}", "x \\neq 5", "x \\geq 5")
  ],
  *[("5", text) for text in ("3 = 5", "1=2=3=4=5", "6 \\to 5", "5_6", "\\frac{5}{0}")],
  *[("x+1", text) for text in ("x", "x=x", "x+1+0/0", "y+1")],
  *[("x > 5", text) for text in ("5", "x", "x < 5", "x \\neq x", "(5, 6)")],
  *[("x = 5", text) for text in ("x", "x = x", "5 = 5", "y = 5")],
  ("\\infty", "-\\infty"),
  ("e^{-50}", "0"),
  ("\\frac{1}{10^{20}}", "\\frac{1}{10^{25}}"),
  ("111", "0,111"),
  ("1, 2", "1.2"),
  ("7", "Answer \\( \n 7 \n \\)"),
]
# Each would take hours or all memory to compute.
HUGE = [
  "10^{10^{10}}",
  "(10^{10})!",
  "\\binom{1000000000}{500000000}",
  "\\sum_{i=1}^{10^9} i^i",
  "(x+1)^{10000}",
  "(\\sqrt{2}+\\sqrt{3}+\\sqrt{5}+\\sqrt{7}+\\sqrt{11})^{99}",
  "(" * 2000 + "5" + ")" * 2000,
  "\\boxed{" * 20_000,
  "$5$ and " * 12_000,
  "5 " * 50_000,
]


@pytest.mark.parametrize(("gold", "answer"), RIGHT)
def test_equal_answers_are_right(gold, answer):
  scores = Math()("", f"so <answer>{answer}</answer>", gold)
  assert scores == {"reward": 1.0, "accuracy": 1.0, "format": 1.0}
  assert R1Zero()("", f"so</think> <answer>{answer}</answer>", gold)["reward"] == 1.0


@pytest.mark.parametrize(("gold", "answer"), WRONG)
def test_different_answers_are_wrong(gold, answer):
  assert Math()("", f"so <answer>{answer}</answer>", gold)["reward"] == 0.0
  assert R1Zero()("", f"so</think> <answer>{answer}</answer>", gold)["reward"] == 0.0


@pytest.mark.parametrize(("gold", "answer"), DISHONEST)
def test_dishonest_answers_are_wrong(gold, answer):
  assert Math()("", f"so <answer>{answer}</answer>", gold)["reward"] == 0.0


@pytest.mark.parametrize("answer", HUGE, ids=lambda text: text[:20])
def test_huge_answers_are_wrong_within_seconds(answer):
  start = time.process_time()
  assert Math()("", f"so <answer>{answer}</answer>", "\\sqrt{2}")["reward"] == 0.0
  assert time.process_time() - start < 20


def test_a_comparison_ends_after_a_number_of_calls_in_any_thread(monkeypatch):
  monkeypatch.setattr(equality, "_MAX_CALLS", 1000)
  rewards = []

  def work():
    rewards.append(Math()("", "\\boxed{\\sin(x)^2 + \\cos(x)^2}", "1")["reward"])
    rewards.append(sys.getprofile())

  thread = threading.Thread(target=work)
  thread.start()
  thread.join()
  assert rewards == [0.0, None]
  monkeypatch.undo()
  assert Math()("", "\\boxed{\\sin(x)^2 + \\cos(x)^2}", "1")["reward"] == 1.0


def test_numbers_do_not_need_math_verify(monkeypatch):
  real = builtins.__import__

  def import_without_math_verify(name, *args):
    assert not name.startswith("math_verify")
    return real(name, *args)

  monkeypatch.setattr(builtins, "__import__", import_without_math_verify)
  for answer, right in (("#### 72", 1.0), ("\\boxed{71}", 0.0), ("72.5", 0.0), ("?", 0.0)):
    assert Math()("", answer, "72")["reward"] == right
  assert Math(symbolic=False)("", "\\boxed{x+1}", "1+x")["reward"] == 0.0
  for kind in (Math, R1Zero):
    text = "so</think> <answer>\\fbox{\u22125}</answer>"
    assert kind(symbolic=False)("", text, "-5")["reward"] == 1.0


def test_a_missing_library_is_reported_at_once(monkeypatch):
  monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
  for kind in (Math, R1Zero):
    with pytest.raises(ValueError, match=r"pip install 'pgax\[math\]', or set symbolic"):
      kind()
    kind(symbolic=False)


def test_any_thread_can_score_and_no_alarm_is_set(monkeypatch):
  def alarm(*_):
    raise AssertionError("signal.alarm was called")

  monkeypatch.setattr(signal, "alarm", alarm)
  rewards = []

  def work():
    rewards.append(Math()("", "\\boxed{1+x}", "x+1")["reward"])

  thread = threading.Thread(target=work)
  thread.start()
  thread.join()
  assert rewards == [1.0]


@given(st.text())
def test_any_text_can_be_scored(text):
  assert Math(symbolic=False)("", text, "5")["reward"] in (0.0, 1.0)
  assert R1Zero(symbolic=False)("", text, "5")["reward"] in (0.0, 1.0)


def test_ground_truth_must_be_an_answer():
  with pytest.raises(ValueError, match="ground_truth is ''; it must be"):
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
def test_r1_zero_scores_format_and_answer(text, format_reward, reward):
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
def test_white_space_separates_numbers_except_groups_of_three_digits(text, number):
  assert exact_number(text) == number
