"""Lagged rollouts: which policy samples them, and what a run continues with."""

import contextlib
import dataclasses
import signal
import threading

import jax
import numpy as np
import pytest

from pgax import algorithms
from pgax.algorithms.config import UpdateConfig
from pgax.data import byte_tokenizer
from pgax.rollout.lagged import Lagged
from pgax.rollout.rollouts import Rollouts
from pgax.runs.json_lines import read_lines
from pgax.training import LoraConfig, train
from pgax.training.health import UncorrectedLagWarning
from pgax.training.loop import Stage
from pgax.training.run import PolicyRun
from pgax.types import Step
from tests import tiny
from tests.training.test_metrics_page import missing

CAPPED = UpdateConfig(importance_cap=2.0)
SHORT = tiny.SupervisedConfig(steps=0)


def config(lag, **changes):
  sampling = dataclasses.replace(tiny.run_config().sampling, lag=lag)
  settings = {"sampling": sampling, "policy_update": CAPPED, "supervised": SHORT}
  return tiny.run_config(**(settings | changes))


def run(workdir, config):
  return train(config, byte_tokenizer(), workdir, progress=False)


def leaves(tree):
  return [np.asarray(x) for x in jax.tree.leaves(tree)]


def assert_same(one, other):
  for x, y in zip(leaves(one), leaves(other), strict=True):
    np.testing.assert_array_equal(x, y)


def results(workdir):
  """Everything that is logged except for times."""
  rows = read_lines(workdir / "metrics.jsonl")
  return [{k: x for k, x in row.items() if not k.startswith("time/")} for row in rows]


def test_rollouts_are_of_the_policy_so_many_steps_before(tmp_path, monkeypatch):
  sampled, steps = [], []

  def sample(self, params, at):
    sampled.append((leaves(params), jax.random.key_data(at.rollout_key)))
    return start(self, params, at)

  def learn(self, state, *args):
    at = Step(int(state.step), state.total_steps, state.key)
    steps.append((leaves(state.params), jax.random.key_data(at.rollout_key)))
    return step(self, state, *args)

  start, step = Rollouts.start, Stage.step
  monkeypatch.setattr(Rollouts, "start", sample)
  monkeypatch.setattr(Stage, "step", learn)
  run(tmp_path, config(2))
  assert len(sampled) == len(steps) == 5
  for number, (params, key) in enumerate(sampled):
    assert_same(params, steps[max(0, number - 2)][0])
    assert_same(key, steps[number][1])
  assert [row.get("rollout/lag") for row in results(tmp_path)] == [None, 0, 1, 2, 2, 2]
  first, *_, last = results(tmp_path)[1:]
  assert not missing(last)
  assert first["ratio/sampler_error"] < 1e-5 and last["ratio/sampler_error"] > 1e-4, last
  key = "correction/effective_sample_size"
  assert last[key] < first[key], last


def test_a_lag_of_0_is_no_lag(tmp_path, monkeypatch):
  plain = run(tmp_path / "plain", config(0))

  def lagged(self):
    made = sources(self)
    return made | {"reinforcement": Lagged(made["reinforcement"], 0, 5, overlap=True)}

  sources = PolicyRun._sources
  monkeypatch.setattr(PolicyRun, "_sources", lagged)
  ours = run(tmp_path / "ours", config(0))
  assert_same(plain.state.params, ours.state.params)
  rows = [
    {k: x for k, x in row.items() if k != "rollout/lag"}
    for row in results(tmp_path / "ours")
  ]
  assert rows == results(tmp_path / "plain")


class KilledError(Exception):
  """Ends a run without its last checkpoint, as SIGKILL does."""


def kill():
  raise KilledError


def interrupt():
  signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize(
  ("end", "changes"),
  [
    (kill, {}),  # continues from the checkpoint before
    # Drawn at once, with adapters over a frozen base.
    (
      interrupt,
      {"algorithm": algorithms.dapo(max_batches=2), "lora": LoraConfig(rank=2)},
    ),
  ],
)
def test_a_run_that_ended_early_continues_the_same(end, changes, tmp_path, monkeypatch):
  def stop(self, state, *args):
    if int(state.step) == 3:
      end()
    return step(self, state, *args)

  step, ahead = Stage.step, config(2, **changes)
  whole = run(tmp_path / "whole", ahead)
  with monkeypatch.context() as patched, contextlib.suppress(KilledError):
    patched.setattr(Stage, "step", stop)
    assert not run(tmp_path / "parts", ahead).finished
  rest = run(tmp_path / "parts", ahead)
  assert rest.finished
  states = [x.state.replace(key=jax.random.key_data(x.state.key)) for x in (whole, rest)]
  assert_same(*states)
  assert results(tmp_path / "whole") == results(tmp_path / "parts")


def test_scores_are_computed_during_the_update(tmp_path, monkeypatch):
  updating, late = threading.Event(), []
  free = {threading.main_thread()}  # which evaluates

  def reward(prompt, completion, ground_truth, metadata):
    thread = threading.current_thread()
    if len(free) == 1:
      free.add(thread)  # scores the first rollout, which the first update waits for
    if thread not in free and not updating.wait(60):
      late.append(completion)
    return tiny.any_reward(prompt, completion, ground_truth, metadata)

  def watched(self):
    stage = reinforcement(self)

    def learn(*args, **arrays):
      updating.set()
      return self.steps.policy_step(*args, **arrays)

    return dataclasses.replace(stage, update=lambda _: learn)

  reinforcement = PolicyRun.reinforcement
  monkeypatch.setattr(PolicyRun, "reinforcement", watched)
  assert run(tmp_path, config(1, reward=reward, steps=3)).finished
  assert updating.is_set() and not late


def test_a_lag_without_correction_is_a_warning(tmp_path):
  with pytest.warns(UncorrectedLagWarning, match="sampling.lag is 1, .*importance_cap"):
    run(tmp_path, config(1, policy_update=UpdateConfig(), steps=1))
