"""The filter of prompts that a policy always or never solves."""

import json

import pytest

from pgax.data import Task, filtered
from pgax.data.solve_rates import read_solve_rates
from pgax.types import Example

RATES = {"a": 0.0, "b": 0.25, "c": 0.75, "d": 1.0, "e\u2028": 0.5, "f": None}
TASK = Task(
  [Example(x, x) for x in [*RATES, "unmeasured"]], [Example("h", "h")], filtered=1
)


@pytest.fixture
def path(tmp_path):
  rows = [{"samples": 4}, *({"prompt": x, "rate": rate} for x, rate in RATES.items())]
  path = tmp_path / "rates.jsonl"
  path.write_text("".join(json.dumps(x, ensure_ascii=False) + "\n" for x in rows))
  return path


@pytest.mark.parametrize(
  ("bounds", "expected"),
  [
    ((), "bce\u2028"),
    ((0.25,), "ce\u2028"),
    ((0.0, 0.75), "be\u2028"),
    ((0.4, 0.6), "e\u2028"),
  ],
)
def test_prompts_within_the_bounds_remain(path, bounds, expected):
  task = filtered(TASK, str(path), *bounds)
  prompts = [task.train[i].prompt for i in range(len(task.train))]
  assert "".join(prompts) == expected
  assert task.filtered == 1 + 7 - len(prompts)
  assert task.held_out is TASK.held_out


@pytest.mark.parametrize("bounds", [(0.5, 0.5), (-0.1, 1.0), (0.0, 1.1), (0.9, 0.1)])
def test_bad_bounds_are_rejected(path, bounds):
  with pytest.raises(ValueError, match="they must satisfy 0 <= low < high <= 1"):
    filtered(TASK, str(path), *bounds)


def test_removing_every_problem_raises(path):
  with pytest.raises(ValueError, match="rates of 6 prompts, but none of the 7 training"):
    filtered(TASK, str(path), 0.8, 0.9)


@pytest.mark.parametrize(
  "row", ["", "no", "[]", '{"prompt": "a"}', '{"prompt": "a", "rate": 2}', '{"rate": 0.5}']
)
def test_invalid_lines_are_named(path, row):
  path.write_text(path.read_text() + row + "\n\n")
  with pytest.raises(ValueError, match=r"rates.jsonl:8: expected an object with 'prompt'"):
    read_solve_rates(path)
