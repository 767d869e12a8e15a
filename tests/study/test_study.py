"""Studies of runs: one seed is the training loop, and bad input is rejected at once."""

import dataclasses
import functools

import jax.numpy as jnp
import numpy as np
import pytest

from pgax import algorithms
from pgax.data import byte_tokenizer
from pgax.errors import UserError
from pgax.rewards.token_text import byte_characters
from pgax.runs.loggers import read_metrics
from pgax.study import policy_program, study, study_runs
from pgax.study.runs import RECORDED, structure_record
from pgax.study.settings import check_run, make_settings
from pgax.tasks import Countdown, countdown
from pgax.training import EvaluationConfig, ScoringConfig, SupervisedConfig, train
from tests import tiny

TOKENIZER = byte_tokenizer()
# Relative differences of metrics in 20 steps, by how many runs are computed at once. Alone,
# a run is the loop's, to the bit; together, products are batched.
TOLERANCE = {1: 0, 4: 2e-4}


def odd_digits(prompt, completion, ground_truth, metadata) -> dict[str, float]:
  """A reward that an untrained model gets half of the time."""
  del prompt, ground_truth, metadata
  return {"reward": float(sum(x in "0123456789" for x in completion) % 2)}


class OddDigits:
  """The same reward of tokens."""

  def __init__(self, token_bytes):
    self.characters = byte_characters(token_bytes)

  def answer_tokens(self, example):
    return [1]

  def __call__(self, prompt_tokens, tokens, mask, answer_tokens):
    text = jnp.where(mask, jnp.asarray(self.characters)[tokens], -1)
    digits = jnp.sum((text >= ord("0")) & (text <= ord("9")), axis=-1)
    return {"reward": (digits % 2).astype(jnp.float32)}


def scaled(factor):
  def reward(prompt, completion, ground_truth, metadata):
    return {"reward": factor}

  return reward


def run_config(**changes):
  base = tiny.run_config(**changes)
  settings = {"reward": odd_digits} if "reward" not in changes else {}
  task = dataclasses.replace(base.task, token_reward=OddDigits)
  evaluation = changes.get("evaluation", EvaluationConfig(every=1, problems=4))
  return dataclasses.replace(base, task=task, evaluation=evaluation, **settings)


@pytest.fixture(
  scope="module",
  params=[algorithms.grpo(epochs=2), algorithms.ppo(), algorithms.remax()],
  ids=["grpo", "ppo", "remax"],
)
def trained_run(request, tmp_path_factory):
  """A run, and the metrics of the loop with another seed and another learning rate."""
  evaluation = EvaluationConfig(every=5, problems=4)
  run = run_config(algorithm=request.param, steps=20, evaluation=evaluation)
  optimizer = dataclasses.replace(run.optimizer, learning_rate=3e-4)
  ordinary = dataclasses.replace(run, seed=5, optimizer=optimizer)
  workdir = tmp_path_factory.mktemp("run")
  train(ordinary, TOKENIZER, workdir, progress=False, loggers=("jsonl",))
  return run, read_metrics(workdir)


@pytest.mark.slow
@pytest.mark.optimized  # what vectors and fused products do to rounding is compared
@pytest.mark.parametrize("at_once", [1, 4])
def test_one_seed_is_the_training_loop(trained_run, at_once):
  run, rows = trained_run
  grid = {"optimizer.learning_rate": [1e-4, 3e-4]}
  found = study(run, TOKENIZER, seeds=[0, 5], grid=grid, at_once=at_once, progress=False)
  check_equal(found, rows, (1, 1), TOLERANCE[at_once])


def check_equal(found, rows, where, tolerance):
  """Compares all metrics of a run with rows of the log."""
  compared = 0
  for name, values in found.metrics.items():
    expected = [row[name] for row in rows if name in row and "loss" in row]
    if name.startswith("eval/"):
      expected = [row[name] for row in rows if name in row]
    if name.startswith("time/") or not expected:
      continue
    compared += 1
    absolute = 1e-6 if tolerance else 0
    np.testing.assert_allclose(
      values[where], np.array(expected, np.float32), tolerance, absolute, err_msg=name
    )
  assert compared > 15


def test_settings_are_all_combinations():
  run = run_config(algorithm=algorithms.grpo())
  grid = {"optimizer.learning_rate": [1, 2], "algorithm.kl.controller.coef": [0, 0.5]}
  assert [tuple(x.values()) for x in make_settings(run, grid)] == [
    *((1.0, 0.0), (1.0, 0.5)),
    *((2.0, 0.0), (2.0, 0.5)),
  ]


@pytest.mark.parametrize(
  ("grid", "message"),
  [
    ({}, "the grid is empty"),
    ({"optimizer.learning_rate": []}, "optimizer.learning_rate has no values"),
    ({"optimizer.learning_rate": ["x"]}, "learning_rate has 'x'; it must be a finite"),
    ({"optimizer.learning_rate": [-1]}, "learning_rate=-1 of the grid: learning_rate is"),
    ({"algorithm.surrogate.clip_low": [2]}, "clip_low=2 of the grid: clip_low is 2"),
    (
      {"sampling.group_size": [4, 8]},
      "which is 4: it decides what is compiled.*study_runs",
    ),
    ({"algorithm.epochs": [1]}, "which is 1: it decides what is compiled"),
    ({"algorithm.clip": [1]}, "'algorithm.clip', which is no setting.*surrogate.clip_high"),
  ],
)
def test_a_bad_grid_is_rejected(grid, message):
  with pytest.raises(UserError, match=message):
    study(run_config(), TOKENIZER, grid=grid)


def of_countdown(reward, solved=True, numbers=None):
  base = tiny.run_config(reward=reward, steps=2, supervised=SupervisedConfig())
  sampling = dataclasses.replace(base.sampling, max_prompt_tokens=12)
  task = countdown(operands=2, train_size=20, held_out_size=8)
  changes = {} if solved else {"solution": ""}
  if numbers:
    changes["metadata"] = {"numbers": numbers}
  held_out = [dataclasses.replace(x, **changes) for x in task.held_out]
  task = dataclasses.replace(task, held_out=held_out)
  return dataclasses.replace(base, task=task, sampling=sampling)


def with_sampling(**changes):
  run = run_config()
  return dataclasses.replace(run, sampling=dataclasses.replace(run.sampling, **changes))


def test_a_run_of_countdown_is_a_program():
  check_run(of_countdown(Countdown()), TOKENIZER, at_once=2)


def test_a_run_alone_may_need_the_host():
  check_run(run_config(algorithm=algorithms.dapo(), reward=tiny.any_reward), TOKENIZER)


def without_token_reward():
  run = run_config()
  return dataclasses.replace(run, task=dataclasses.replace(run.task, token_reward=None))


@pytest.mark.parametrize(
  ("run", "message"),
  [
    (without_token_reward, "the task has no token_reward.*at_once=1"),
    (lambda: run_config(algorithm=algorithms.dapo()), "dynamic_sampling.*at_once=1"),
    (lambda: run_config(scoring=ScoringConfig(workers=1)), "scoring.workers is 1"),
    (lambda: with_sampling(lag=1), "sampling.lag is 1.*set them to 0"),
    (lambda: run_config(init_from_run="/"), "init_from_run is '/'.*the argument params"),
    (lambda: of_countdown(Countdown(), solved=False), "is 0 for the solutions of 8"),
    (lambda: of_countdown(Countdown(), numbers=(0,)), "can't score problem .*positive"),
    (lambda: run_config(steps=3, evaluation=EvaluationConfig(every=2)), "steps is 3 and"),
    (lambda: run_config(reward=tiny.any_reward), "the reward of the run gives .*'reward'"),
    (lambda: of_countdown(Countdown(use_all=False)), "gives {'reward': 0.0, .*'format': 1"),
    (lambda: of_countdown(Countdown(format_score=0.1)), "run gives {'reward': 0.1"),
  ],
)
def test_a_run_that_needs_the_host_is_rejected(run, message):
  with pytest.raises(UserError, match=message):
    study(run(), TOKENIZER, seeds=1, at_once=2)


@pytest.mark.parametrize("seeds", [0, [], [1, 1], [-1]])
def test_bad_seeds_are_rejected(seeds):
  with pytest.raises(UserError, match="give a number of seeds, or different ones"):
    study(run_config(), TOKENIZER, seeds=seeds)


def test_runs_that_differ_in_numbers_share_a_program(monkeypatch):
  programs = []

  def fake(program, settings, seeds, **options):
    programs.append((options["record"]["names"], settings))
    shape = (len(settings), len(seeds), program.steps)
    return {"reward/mean": np.full(shape, float(len(programs)))}

  monkeypatch.setattr("pgax.study.runs.run_program", fake)
  base = run_config(supervised=SupervisedConfig())
  task = {"task": base.task}
  runs = {
    "a": base,
    "b": dataclasses.replace(base, algorithm=algorithms.grpo(clip_high=0.5), **task),
    "c": dataclasses.replace(base, algorithm=algorithms.rloo(), **task),
  }
  found = study_runs(runs, TOKENIZER, seeds=2, at_once=2)
  assert [names for names, _ in programs] == [["a", "b"], ["c"]]
  clips = [x["algorithm.surrogate.clip_high"] for x in programs[0][1]]
  assert clips == [0.2, 0.5]
  assert found.settings == ("a", "b", "c")
  assert found.metrics["reward/mean"][:, 0, 0].tolist() == [1.0, 1.0, 2.0]


def test_runs_of_a_seed_share_their_supervised_stage():
  program, trained = policy_program(run_config(), TOKENIZER), []
  runs = program.start.__self__

  def pretrained(seeds, numbers):
    trained.append((list(seeds), {x: list(values) for x, values in numbers.items()}))
    return jnp.asarray(seeds, jnp.float32)

  runs._pretrained, runs._begin = pretrained, lambda numbers, states: states
  rate, other = "optimizer.learning_rate", "supervised.optimizer.learning_rate"
  found = program.start({rate: np.array([1, 2, 1])}, [0, 0, 5])
  assert found.tolist() == [0, 0, 5] and trained.pop() == ([0, 5], {})
  assert program.start({rate: np.array([2, 1])}, [5, 6]).tolist() == [5, 6]
  assert trained.pop() == ([6], {})
  program.start({other: np.array([3.0, 3.0])}, [6, 6])
  assert trained.pop() == ([6], {other: [3.0]})
  program.start({other: np.array([3.0, 4.0])}, [6, 6])
  assert trained.pop() == ([6, 6], {other: [3.0, 4.0]})


def test_every_field_of_a_run_is_recorded_or_named_here():
  # Steps are recorded by the engine; problems and starts are not compared; a study has the
  # seeds and the folder of its own, no checkpoints, and rejects what needs the host.
  others = {
    *("steps", "task", "init_from_run", "model_path", "name", "seed", "checkpoints"),
    *("samples_every", "max_skipped", "mesh", "scoring", "reward_model", "step_reward"),
  }
  fields = {field.name for field in dataclasses.fields(run_config())}
  assert {*RECORDED} | others == fields and not {*RECORDED} & others


def test_a_folder_is_of_one_configuration(tmp_path):
  run = run_config(steps=1, evaluation=EvaluationConfig(every=1, problems=2))
  options = {"seeds": 1, "workdir": tmp_path, "progress": False}
  found = study(run, TOKENIZER, **options)
  again = study(run, TOKENIZER, **options)  # nothing is computed
  assert again.metrics["time/run"] == found.metrics["time/run"]
  text = (tmp_path / "program_0" / "study.json").read_text()
  assert "<function odd_digits>" in text and " at 0x" not in text
  other = functools.partial(dataclasses.replace, run)
  for change in (1.0, 2.0):
    described = structure_record(other(reward=scaled(change)), {})["reward"]
    assert described.endswith(f" {change}")
  sampling = dataclasses.replace(run.sampling, top_k=5)
  with pytest.raises(UserError, match="program_0 holds another study: sampling differ"):
    study(dataclasses.replace(run, sampling=sampling), TOKENIZER, **options)
