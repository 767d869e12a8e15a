"""Runs whose reward function misbehaves: they count it, or stop with a report."""

import math

import numpy as np
import pytest

from pgax.data import byte_tokenizer
from pgax.rewards.pool import Job
from pgax.rollout.scoring import open_reward_runner
from pgax.runs.json_lines import read_lines
from pgax.training import ScoringConfig, SupervisedConfig, UserError, train
from pgax.training.preflight import check_run
from tests import tiny
from tests.rewards.functions import by_command, one_in_ten

# Untrained, so that completions are of many kinds.
SETTINGS = {"supervised": SupervisedConfig(steps=0), "steps": 2}


def run(reward, scoring, workdir, **changes):
  config = tiny.run_config(reward=reward, scoring=scoring, **(SETTINGS | changes))
  return train(config, byte_tokenizer(), workdir, progress=False)


def test_a_run_survives_what_its_reward_function_does(tmp_path):
  solutions = [tiny.run_config().task.train[0].solution]
  assert sum(map(ord, solutions[0])) % 10 < 7  # the check before the start finds nothing
  run(one_in_ten, ScoringConfig(workers=2, timeout_seconds=0.5), tmp_path)
  rows = [row for row in read_lines(tmp_path / "metrics.jsonl") if "loss" in row]
  assert len(rows) == 2 and all(math.isfinite(row["loss"]) for row in rows)
  reasons = ("crash", "exception", "nan", "timeout")
  totals = {x: sum(row[f"unscorable/{x}"] for row in rows) for x in reasons}
  assert min(totals[x] for x in ("crash", "nan", "timeout")) > 0
  assert totals["exception"] == 0
  for row in rows:
    counted = sum(row[f"unscorable/{x}"] for x in reasons)
    assert counted == round(row["reward/unscorable"] * row["completions/generated"])


def test_workers_give_the_same_run(tmp_path):
  for name, workers in (("here", 0), ("there", 2)):
    run(tiny.any_reward, ScoringConfig(workers=workers), tmp_path / name, steps=1)
  here, there = (
    read_lines(tmp_path / name / "metrics.jsonl")[-1] for name in ("here", "there")
  )
  same = [name for name in here if not name.startswith("time/")]
  assert {x: here[x] for x in same} == {x: there[x] for x in same}


def always_nan(prompt, completion, ground_truth, metadata):
  return {"reward": np.nan}


def test_too_many_stop_the_run(tmp_path):
  with pytest.raises(
    UserError,
    match=r"100\.0% of the step's 16 completions could not be scored \(nan 16\); "
    r"scoring.max_unscorable allows 50.0%. The first failure: nan: the reward is nan",
  ):
    run(always_nan, ScoringConfig(max_unscorable=0.5), tmp_path)


def test_the_solution_of_the_first_problem_must_be_scored():
  for scoring in (ScoringConfig(), ScoringConfig(workers=1)):
    config = tiny.run_config(reward=raising, scoring=scoring)
    with pytest.raises(UserError, match="reward .* fails on the solution .*no such thing"):
      check_run(config, byte_tokenizer())


def raising(prompt, completion, ground_truth, metadata):
  raise LookupError("no such thing")


def test_a_function_that_workers_can_not_load(tmp_path):
  with pytest.raises(UserError, match="can't load the reward function"):
    run(lambda *_: {"reward": 1.0}, ScoringConfig(workers=1), tmp_path)


def test_metadata_reaches_the_workers():
  with open_reward_runner(
    by_command, ScoringConfig(workers=1, timeout_seconds=5.0)
  ) as runner:
    assert runner([Job("", "ab", "", {"a": [1]})])[0].scores["reward"] == 2.0


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"workers": -1}, "workers is -1"),
    ({"timeout_seconds": 0.0}, "timeout_seconds is 0.0; it must be positive"),
    ({"pipeline_chunks": 0}, "pipeline_chunks is 0; it must be at least 1"),
    ({"max_unscorable": 1.5}, r"max_unscorable is 1.5; it must be in \[0, 1\]"),
  ],
)
def test_bad_settings(changes, message):
  with pytest.raises(ValueError, match=message):
    ScoringConfig(**changes)
