"""Tasks from rows of files: held-out fractions and bad rows."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from pgax.data import Fields, from_rows, json_lines
from pgax.data.sources import read_problems

EXCERPT = Path(__file__).parent / "gsm8k"


def test_a_bad_row_is_named_even_without_a_reason():
  def parse(row):
    raise ValueError

  rows = json_lines(str(EXCERPT / "train.jsonl"))
  with pytest.raises(ValueError, match=r"train.jsonl:1: no reason is given$"):
    read_problems(rows, parse)
  assert len(read_problems(rows, parse, max_bad_rows=25).bad_rows) == 25


def _prompts(examples):
  return [examples[i].prompt for i in range(len(examples))]


def test_the_held_out_fraction_does_not_depend_on_other_problems(tmp_path):
  lines = [json.dumps({"q": f"{i}?", "a": str(i)}) for i in range(400)]
  splits = []
  for size in (300, 400):
    path = tmp_path / f"{size}.jsonl"
    path.write_text("\n".join([*lines[:size], lines[0], "{}"]))  # one twice, one bad
    rows, parse = json_lines(str(path)), Fields("q", "a")
    task = from_rows(rows, 0.2, parse, max_bad_rows=1)
    train, held_out = _prompts(task.train), _prompts(task.held_out)
    assert len(train + held_out) == size + 1 and not set(train) & set(held_out)
    assert len(task.bad_rows) == 1
    splits.append(set(held_out))
  assert splits[0] < splits[1] and 60 < len(splits[1]) < 100
  for fraction in (0.0, 1, -0.1, math.nan):
    with pytest.raises(ValueError, match=f"held_out is {fraction}; it must be rows, or a"):
      from_rows(rows, fraction, parse, max_bad_rows=1)
  for fraction in (1e-9, np.float32(1 - 1e-7)):
    with pytest.raises(ValueError, match="leaves one split of 401 problems empty"):
      from_rows(rows, fraction, parse, max_bad_rows=1)
