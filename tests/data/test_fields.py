"""Examples from rows: fields by name, and bad rows."""

import json

import numpy as np
import pytest

from pgax.data import Fields
from pgax.rewards import final_answer
from pgax.types import Example

ROW = {
  "text": "Two and two?",
  "said": "It is 4.\n#### 4 \nreally",
  "number": np.int64(4),
  "deep": {"inner": [np.float32(0.5), b"x"], "array": np.arange(2)},
  "bytes": b"caf\xc3\xa9",
}


def test_all_fields_of_an_example():
  fields = Fields("text", "said", "said", ["deep", "number"], "<{prompt}>", "####")
  assert fields(ROW) == Example("<Two and two?>", "4", ROW["said"], fields(ROW).metadata)
  metadata = fields(ROW).metadata
  assert metadata == {"deep": {"inner": [0.5, "x"], "array": [0, 1]}, "number": 4}
  assert type(metadata["number"]) is int


def test_bytes_numbers_and_dotted_names():
  assert Fields("bytes", "number")(ROW) == Example("café", "4")
  assert Fields("text")(ROW) == Example("Two and two?", "")
  assert Fields("text", "deep.inner")({"text": "a", "deep.inner": "b"}).ground_truth == "b"


@pytest.mark.parametrize(
  ("value", "text"),
  [
    (2.0, "2.0"),
    (-0.5, "-0.5"),
    (1e-5, "0.00001"),
    (1e16, "10000000000000000"),
    (np.float64(1.5e20), "150000000000000000000"),
    pytest.param(10**400, f"1{'0' * 400}", id="401 digits"),
  ],
)
def test_verifiers_can_read_the_text_of_a_number(value, text):
  truth = Fields("q", "a")({"q": "x", "a": value}).ground_truth
  assert truth == text and final_answer("", f"#### {text}", truth)["reward"] == 1.0


@pytest.mark.parametrize(
  ("fields", "message"),
  [
    (Fields("none"), "field 'none' is missing; the fields are bytes, deep, number"),
    (Fields("deep.none"), "field 'none' is missing; the fields are array, inner"),
    (Fields("number"), "field 'number' is 4; it must be text"),
    (Fields("text", "deep"), "field 'deep' is {.*; it must be text"),
    (Fields("text", "text", marker="####"), "'text' has nothing after the marker"),
    (Fields("text", solution="none"), "field 'none' is missing"),
    (Fields("text", metadata=("none",)), "field 'none' is missing"),
  ],
)
def test_bad_rows_are_rejected(fields, message):
  with pytest.raises(ValueError, match=message):
    fields(ROW)


def test_the_nesting_of_metadata_is_limited():
  deep = json.loads("[" * 99 + "]" * 99)
  assert Fields("q", metadata=["m"])({"q": "a", "m": deep}).metadata == {"m": deep}
  with pytest.raises(ValueError, match="metadata is nested deeper than 100 levels"):
    Fields("q", metadata=["m"])({"q": "a", "m": [[deep]]})


@pytest.mark.parametrize(
  ("settings", "message"),
  [
    ({"prompt": ""}, "prompt is ''"),
    ({"prompt": "a", "metadata": "tests"}, "metadata is 'tests'; it must be a list"),
    ({"prompt": "a", "metadata": ["mixture"]}, "metadata names the field 'mixture'"),
    ({"prompt": "a", "template": "b"}, "template is 'b'"),
    ({"prompt": "a", "marker": "#"}, "marker is '#', but ground_truth names no field"),
  ],
)
def test_bad_settings_are_rejected(settings, message):
  with pytest.raises(ValueError, match=message):
    Fields(**settings)


@pytest.mark.parametrize("value", [True, None, [1], float("inf")])
def test_the_ground_truth_must_be_text_or_a_number(value):
  with pytest.raises(ValueError, match="field 'a' is"):
    Fields("q", "a")({"q": "x", "a": value})
