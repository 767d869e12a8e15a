"""The measurement of solve rates: interrupted, continued, and used as a filter."""

import dataclasses
import json

import numpy as np
import pytest

from pgax.data import CollatePrompts, byte_tokenizer, filtered
from pgax.data.solve_rates import read_solve_rates
from pgax.errors import UserError
from pgax.evaluation.solve_rates import measure
from pgax.rewards.pool import InProcess
from pgax.tasks import addition
from tests import tiny

TASK = addition(digits=1)
PROBLEMS = [TASK.train[i] for i in range(10)]
SAMPLES = 4


def reward(prompt, completion, ground_truth, metadata):
  """Half of all texts are right; those on 0 never, and those on 1 can't be scored."""
  del ground_truth, metadata
  right = float(sum(map(ord, completion)) % 2) * (not prompt.startswith("0"))
  return {"reward": 10 * right, "accuracy": np.nan if prompt.startswith("1") else right}


@pytest.fixture(scope="module")
def call():
  tokenizer = byte_tokenizer()
  sampler = tiny.sampler(max_completion_tokens=16)

  def call(path, scored=reward, problems=PROBLEMS, **changes):
    settings = {"samples": SAMPLES, "temperature": 1.0, "batch_size": 4} | changes
    collate = CollatePrompts(tokenizer, max_prompt_tokens=5)
    return measure(
      sampler, tiny.params(), problems, collate, InProcess(scored), path, **settings
    )

  return call


def test_rates_are_fractions_and_an_interrupted_measurement_goes_on(call, tmp_path):
  path, again = tmp_path / "rates.jsonl", tmp_path / "again.jsonl"
  spread = [TASK.train[i] for i in (0, 1, 2, 30, 31, 50, 51, 52, 70, 71)]
  rates = call(path, problems=spread)
  assert len(rates) == 10 and {x * SAMPLES % 1 for x in rates} == {0}
  assert [x for x, y in zip(rates, spread, strict=True) if y.prompt[0] == "0"] == [0] * 3
  assert len(set(rates)) > 2
  assert read_solve_rates(path) == {x.prompt: r for x, r in zip(spread, rates, strict=True)}

  lines = path.read_text().splitlines(keepends=True)
  again.write_text("".join(lines[:6]) + lines[6][:9])  # killed while it wrote a row
  seen = []
  assert call(again, problems=spread, progress=seen.append) == rates
  assert again.read_bytes() == path.read_bytes() and seen == [8, 10]

  def never(*arguments):
    raise AssertionError("nothing is left to score")

  assert call(path, never, spread) == rates
  task = filtered(dataclasses.replace(TASK, train=spread), str(path))
  kept = [r for r in rates if 0 < r < 1]
  assert len(task.train) == len(kept) and task.filtered == 10 - len(kept)


def test_what_can_not_be_scored_has_no_rate(call, tmp_path):
  ones = [x for x in map(TASK.train.__getitem__, range(30)) if x.prompt[0] == "1"][:4]
  assert call(tmp_path / "x", problems=ones) == [None] * 4
  assert set(read_solve_rates(tmp_path / "x").values()) == {None}


def test_a_bad_row_ends_what_can_be_used(call, tmp_path):
  path = tmp_path / "rates.jsonl"
  rates = call(path)
  head, *rows = path.read_text().splitlines(keepends=True)
  for bad in ("{}\n", "no\n", rows[0], rows[1].replace("rate", "rat")):
    path.write_text("".join([head, rows[0], bad, *rows[2:]]))
    assert call(path) == rates
    assert path.read_text() == "".join([head, *rows])


def test_a_file_of_another_measurement(call, tmp_path):
  path = tmp_path / "rates.jsonl"
  head = {"problems": 10, "samples": 8, "temperature": 1.0, "batch_size": 4, "seed": 0}
  path.write_text(json.dumps(head) + "\n")
  with pytest.raises(
    UserError, match="holds another measurement.*differs in problems, samples"
  ):
    call(path)
  path.unlink()
  call(path, problems=PROBLEMS[:2])
  with pytest.raises(UserError, match="it differs in problems. Give another file"):
    call(path, problems=PROBLEMS[2:4])
  path.write_text("no\n")
  with pytest.raises(UserError, match="or none"):
    call(path)
  assert path.read_text() == "no\n"


def test_a_rate_is_a_fraction(call, tmp_path):
  def grade(prompt, completion, ground_truth, metadata):
    return {"reward": 7.0}

  with pytest.raises(UserError, match=r"mean reward of '0\+0=' is 7.0"):
    call(tmp_path / "x", grade)
