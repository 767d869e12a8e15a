"""Stored completions: a run learns from what another one sampled."""

import dataclasses
import json

import jax
import numpy as np
import pytest

from pgax import algorithms
from pgax.data import byte_tokenizer
from pgax.data.completions import read_completions
from pgax.errors import UserError
from pgax.rollout.stored import Stored
from pgax.runs.json_lines import read_lines
from pgax.training import DataConfig, train
from tests import tiny


def run(workdir, **changes):
  settings = {"steps": 3, "samples_every": 1, "supervised": tiny.SupervisedConfig()}
  config = tiny.run_config(**(settings | changes))
  return train(config, byte_tokenizer(), workdir, progress=False, loggers=("jsonl",))


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
  """The completions that an ordinary run has written."""
  folder = tmp_path_factory.mktemp("stored") / "run"
  assert run(folder).finished
  return folder / "samples.jsonl"


def learn(samples, workdir, **changes):
  data = DataConfig(completions=str(samples))
  algorithm = changes.pop("algorithm", algorithms.a_lol())
  return run(workdir, data=data, algorithm=algorithm, **changes)


def test_what_was_sampled_is_what_is_trained_on(samples):
  groups = read_completions(samples, 4)
  rows = [x for x in read_lines(samples) if x["split"] == "train"]
  assert len(groups) == 6 and len(rows) == 24  # two groups of each of three steps
  source = Stored(tiny.Prompts(lambda _: groups[:2]), 5, 16, jax.devices()[0])
  experience = tiny.experience(source, params_=())
  rollout, feedback = jax.device_get((experience.rollout, experience.feedback))
  for n, k in np.ndindex(2, 4):
    row, mask = rows[4 * n + k], rollout.action_mask[n, k]
    assert rollout.tokens[n, k][mask].tolist() == row["ids"]
    np.testing.assert_allclose(rollout.sample_logp[n, k][mask], row["sample_logp"])
    np.testing.assert_allclose(rollout.logp[n, k][mask], row["logp"])
    assert feedback.rewards[n, k] == row["reward"]
    assert rollout.finished[n, k] == row["finished"]
  assert experience.metrics["reward/mean"] == pytest.approx(feedback.rewards.mean())


def test_a_run_learns_from_them_and_resumes(samples, tmp_path):
  whole = learn(samples, tmp_path / "whole")
  learn(samples, tmp_path / "parts", steps=1)
  parts = learn(samples, tmp_path / "parts")
  for x, y in zip(*(jax.tree.leaves(r.state.params) for r in (whole, parts)), strict=True):
    np.testing.assert_array_equal(x, y)
  first, *_, last = read_lines(tmp_path / "whole" / "metrics.jsonl")[1:]
  assert first["tokens/generated"] == 0 and first["update/optimizer_steps"] == 1
  # The policy leaves the one that sampled.
  assert first["ratio/sampler_error"] < last["ratio/sampler_error"]


def test_a_run_does_not_go_on_with_other_completions(samples, tmp_path):
  path = tmp_path / "samples.jsonl"
  path.write_text(samples.read_text())
  learn(path, tmp_path / "run", steps=1)
  path.write_text(samples.read_text().replace('"reward": 1.0', '"reward": 0.5'))
  with pytest.raises(UserError, match="not those that the run began with"):
    learn(path, tmp_path / "run", steps=2)


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"algorithm": algorithms.dapo()}, "the algorithm's dynamic_sampling is"),
    ({"algorithm": algorithms.remax()}, "the algorithm's greedy_baseline is True"),
    ({"sampling": {"lag": 1}}, "sampling.lag is 1"),
    ({"sampling": {"group_size": 16}}, "no prompt with 16 stored completions"),
    ({"sampling": {"max_completion_tokens": 2}}, "at most 2 is allowed"),
  ],
)
def test_what_would_be_ignored_or_does_not_fit_is_rejected(
  samples, tmp_path, changes, message
):
  sampling = dataclasses.replace(tiny.run_config().sampling, **changes.pop("sampling", {}))
  with pytest.raises(UserError, match=message):
    learn(samples, tmp_path / "run", sampling=sampling, **changes)
  assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
  ("change", "message"),
  [
    ({"sample_logp": [None]}, ":1: TypeError"),
    ({"logp": []}, ":1: ValueError: logp must have a finite number for each of the ids"),
    ({"logp": [float("nan")]}, ":1: ValueError: logp must have a finite number"),
    ({"logp": [0.5]}, "logp has 0.5; a log-probability is at most 0"),
    ({"ids": [], "logp": [], "sample_logp": []}, r"ids is \[\]; .* and not empty"),
    ({"ids": "4"}, "ids is '4'; it must be a list of token ids"),
    ({"ids": [-4]}, "ids has -4; a token id is a whole number from 0"),
    ({"prompt_ids": [3.5]}, "prompt_ids has 3.5; a token id is a whole number from 0"),
    ({"reward": "1"}, "reward is '1'; it must be a number or null"),
    ({"finished": 1}, "finished is 1; it must be true or false"),
    ({"finished": ...}, ":1: KeyError: 'finished'"),
  ],
)
def test_a_damaged_line_is_named(tmp_path, change, message):
  row = {
    **{"prompt": "1", "prompt_ids": [3], "ids": [4], "logp": [-1.0]},
    **{"sample_logp": [-1.0], "reward": 1.0, "finished": True},
  }
  row = {name: x for name, x in (row | change).items() if x is not ...}
  path = tmp_path / "rows.jsonl"
  path.write_text(json.dumps(row) + "\n")
  with pytest.raises(ValueError, match=message):
    read_completions(path, 1)
