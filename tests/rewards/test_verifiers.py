"""Verifiers of text and JSON, rewards for style, and combined rewards."""

import importlib.util
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgax.rewards import (
  Combined,
  ExactMatch,
  JSONSchema,
  LengthTarget,
  NumericMatch,
  Regex,
  RepetitionPenalty,
  combine,
  final_answer,
)

SCHEMA = '{"type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}}}'


def reward(function, completion, truth="", metadata=None):
  return function("", completion, truth, metadata or {})["reward"]


@pytest.mark.parametrize(
  ("text", "format_score", "score"),
  [
    ('{"a": 1}', 1.0, 1.0),
    (' {"a": 1, "b": null}\n', 1.0, 1.0),
    ('Here:\n```json\n{"a": 1}\n```\nDone.', 1.0, 1.0),
    ('```python\nx\n```\nThen\n```json\n{"a": 1}\n```', 1.0, 1.0),
    ('```JSON\r\n{"a": 1}\r\n```', 1.0, 1.0),
    ('{"a": "1"}', 1.0, 0.0),
    ("{}", 1.0, 0.0),
    ("[]", 1.0, 0.0),
    ('{"a": NaN}', 0.0, 0.0),
    ("{'a': 1}", 0.0, 0.0),
    ('so {"a": 1}', 0.0, 0.0),
    ("", 0.0, 0.0),
    ("[" * 100_000, 0.0, 0.0),
  ],
)
def test_json_is_checked_against_the_schema(text, format_score, score):
  scores = JSONSchema(SCHEMA)("", text, "")
  assert scores == {"reward": score, "accuracy": score, "format": format_score}


@pytest.mark.parametrize(
  ("schema", "text"),
  [
    ('{"type": "array", "items": {"$ref": "#"}}', "[" * 400 + "]" * 400),
    ('{"multipleOf": 0.1}', "1e999"),
    ('{"multipleOf": 0.1}', "1" + "0" * 400),
  ],
)
def test_json_that_cannot_be_checked_is_invalid(schema, text):
  scores = JSONSchema(schema)("", text, "")
  assert scores == {"reward": 0.0, "accuracy": 0.0, "format": 1.0}


def test_each_problem_can_have_its_own_schema():
  for schema in ({"type": "array"}, '{"type": "array"}'):
    assert reward(JSONSchema(), "[1]", metadata={"schema": schema}) == 1.0
    assert reward(JSONSchema(), "{}", metadata={"schema": schema}) == 0.0
  with pytest.raises(ValueError, match="has the keys \\['x'\\] and no 'schema'"):
    reward(JSONSchema(), "[]", metadata={"x": 1})


@pytest.mark.parametrize("schema", ['{"type": "strange"}', "not json", "[1]"])
def test_a_bad_schema_is_rejected(schema):
  with pytest.raises(ValueError, match="it must be a JSON schema"):
    JSONSchema(schema)


def test_referenced_schemas_are_not_fetched():
  schema = JSONSchema('{"$ref": "http://127.0.0.1:9/schema.json"}')
  with pytest.raises(Exception, match="Unresolvable"):
    reward(schema, "{}")


def test_a_missing_library_is_reported_at_once(monkeypatch):
  monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
  with pytest.raises(ValueError, match=r"pip install 'pgax\[json\]'"):
    JSONSchema(SCHEMA)


def test_exact_match():
  assert reward(ExactMatch(), " Paris\n", "Paris") == 1.0
  assert reward(ExactMatch(), "paris", "Paris") == 0.0
  assert reward(ExactMatch(ignore_case=True), "paris", "Paris") == 1.0
  assert reward(ExactMatch(), "It is <answer>Paris</answer>", "Paris") == 0.0
  assert reward(ExactMatch(extract=True), "It is <answer>Paris</answer>", "Paris") == 1.0
  assert reward(ExactMatch(extract=True), "Paris", "Paris") == 0.0


def test_regular_expressions():
  assert reward(Regex(r"\d{3}"), "a 123 b") == 1.0
  assert reward(Regex(r"\d{3}", full_match=True), "a 123 b") == 0.0
  assert reward(Regex(r"\d{3}", full_match=True), "123") == 1.0
  assert reward(Regex(), "abc", "^a.c$") == 1.0
  with pytest.raises(ValueError, match="pattern is '\\('; it must be a regular expression"):
    Regex("(")


@pytest.mark.parametrize(
  ("text", "truth", "right"),
  [
    ("about 3.14", "3.14159", 0.0),
    ("about 3.141593", "3.14159", 1.0),
    ("<answer>2/3</answer>", "0.6666667", 1.0),
    ("\\boxed{1,000}", "1000", 1.0),
    ("it is 6.02e23", "6.02e23", 1.0),
    ("-0.5", "0.5", 0.0),
    ("0", "0", 1.0),
    ("inf", "5", 0.0),
    ("1e999", "5", 0.0),
    ("none", "5", 0.0),
    ("It is 2/3", "2/3", 1.0),
    ("It is 2/3", "3", 0.0),
    ("<answer>1,2</answer>", "12", 0.0),
    ("the pair (1,2)", "12", 0.0),
    ("20,30,40", "203040", 0.0),
    ("<answer>\u22125</answer>", "5", 0.0),
    ("it is \u22125", "-5", 1.0),
    ("it is .5, or so", "0.5", 1.0),
    ("it weighs 3.5kg", "3.5", 1.0),
    ("it weighs 3.5kg", "3", 0.0),
    ("<answer>5 or 6</answer>", "6", 0.0),
    ("<answer>5 1/2</answer>", "0.5", 0.0),
    ("\\boxed{5 \\times 10^2}", "2", 0.0),
    ("<answer>2\u221a3</answer>", "3", 0.0),
    ("<answer>about 1,234.5 km</answer>", "1234.5", 1.0),
    ("Answer:5", "5", 1.0),
    *(
      (f"It is {text}", gold, 0.0)
      for text, gold in [
        ("\u20135", "5"),
        ("\u00b15", "5"),
        ("3-5", "5"),
        ("3\u20135", "-5"),
        ("x^2", "2"),
        ("10^6", "6"),
        ("sqrt(3)", "3"),
        ("2\u03c0/3", "3"),
        ("14:30", "30"),
        ("2024-01-05", "5"),
      ]
    ),
    ("It is \u20135", "-5", 1.0),
    ("from 3-5 to (7)", "7", 1.0),
  ],
)
def test_numeric_match(text, truth, right):
  assert reward(NumericMatch(), text, truth) == right


def test_numeric_tolerances():
  assert reward(NumericMatch(absolute=0.1), "3.2", "3.14") == 1.0
  assert reward(NumericMatch(relative=0.1), "90", "100") == 1.0
  assert reward(NumericMatch(relative=0.1), "89", "100") == 0.0
  with pytest.raises(ValueError, match="relative is -1; it must be at least 0"):
    NumericMatch(relative=-1)
  for truth in ("", "x", "nan", "inf"):
    with pytest.raises(ValueError, match="must be a finite number"):
      reward(NumericMatch(), "1", truth)


@given(st.text())
def test_any_text_can_be_scored(text):
  functions = (ExactMatch(), NumericMatch(), Regex("a+"), LengthTarget(3, 2))
  for function in (*functions, RepetitionPenalty(), JSONSchema(SCHEMA)):
    assert math.isfinite(reward(function, text, "5"))


def test_length_target():
  words = LengthTarget(target=4, width=2)
  assert [reward(words, "w " * n) for n in range(1, 7)] == [0.0, 0.0, 0.5, 1.0, 0.5, 0.0]
  assert words("", "a b", "")["length"] == 2
  assert reward(LengthTarget(3, 3, unit="characters"), "ab") == pytest.approx(2 / 3)
  for bad in ({"target": -1}, {"width": 0}, {"unit": "tokens"}):
    with pytest.raises(ValueError, match=f"{next(iter(bad))} is .*(must|allowed)"):
      LengthTarget(**({"target": 1, "width": 1} | bad))


def test_repetition_penalty():
  assert reward(RepetitionPenalty(size=2), "a b a b a") == -0.5  # ab ba ab ba
  assert reward(RepetitionPenalty(size=2, penalty=3.0), "A b a B a") == -1.5
  assert reward(RepetitionPenalty(size=1), "x " * 100) == pytest.approx(-0.99)
  assert reward(RepetitionPenalty(size=3), "a b") == 0.0
  assert reward(RepetitionPenalty(), "") == 0.0
  for bad in ({"size": 0}, {"penalty": -1.0}, {"penalty": math.nan}, {"penalty": math.inf}):
    with pytest.raises(ValueError, match=f"{next(iter(bad))} is"):
      RepetitionPenalty(**bad)


def test_a_combined_reward_is_a_weighted_sum_of_named_rewards():
  both = Combined((("right", final_answer, 1.0), ("short", LengthTarget(2, 4), 0.5)))
  assert both("", "#### 7", "7") == {
    "reward": 1.5,
    "right": 1.0,
    "right/accuracy": 1.0,
    "right/format": 1.0,
    "short": 1.0,
    "short/length": 2.0,
    "accuracy": 1.0,
  }
  same = combine(
    {"short": LengthTarget(2, 4), "right": final_answer}, {"right": 1.0, "short": 0.5}
  )
  assert same == both and hash(same) == hash(both)


def test_an_unscorable_part_makes_the_sum_unscorable_unless_its_weight_is_zero():
  def unscorable(*_):
    return {"reward": math.nan}

  parts = (("right", final_answer, 1.0), ("unsure", unscorable, 1.0))
  assert math.isnan(reward(Combined(parts), "#### 7", "7"))
  combined = Combined((parts[0], ("unsure", unscorable, 0.0)))
  scores = combined("", "#### 7", "7", {})
  assert scores["reward"] == 1.0 and math.isnan(scores["unsure"])


@pytest.mark.parametrize(
  ("parts", "message"),
  [
    ((), "parts is empty"),
    ((("a", final_answer, 1.0), ("a", final_answer, 1.0)), "parts has the name 'a'"),
    ((("reward", final_answer, 1.0),), "parts has the name 'reward'"),
    ((("a", "f", 1.0),), "a is 'f'; it must be a reward function"),
    ((("a", final_answer, math.nan),), "the weight of a is nan; it must be finite"),
  ],
)
def test_bad_combinations_are_rejected(parts, message):
  with pytest.raises(ValueError, match=message):
    Combined(parts)


def test_every_combined_function_needs_a_weight():
  with pytest.raises(ValueError, match=r"weights are given for \['b'\] and functions for"):
    combine({"a": final_answer}, {"b": 1.0})
