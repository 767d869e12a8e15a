"""The loop: a run that is interrupted anywhere ends with the same bits."""

import dataclasses
import json
import shutil
import signal
from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np
import pytest

from pgax import algorithms, kl
from pgax.algorithms import parts
from pgax.data import byte_tokenizer
from pgax.distributed.mesh import make_mesh
from pgax.errors import UserError
from pgax.learner import CriticConfig, LearnerConfig
from pgax.ops.entropy import AdaptiveController
from pgax.runs.json_lines import read_lines
from pgax.runs.loggers import JsonLines
from pgax.runs.workdir import read_config
from pgax.training import Progress, train
from pgax.training.loop import Stage
from pgax.training.policy import load_params
from tests import tiny
from tests.runs.test_checkpoint import words

FIXED_NAMES = {
  "step",
  "reward/mean",
  "reward/std",
  "loss",
  "grad_norm",
  "entropy",
  "kl/ref",
  "ratio/clip_fraction",
  "ratio/sampler_error",
  "groups/zero_variance",
  "length/mean",
  "length/truncated",
  "time/rollout",
  "time/reward",
  "time/train",
  "tokens/generated",
}


@dataclasses.dataclass(frozen=True)
class EstimateAboveBaseline:
  """Generalized advantages, less a moving average of the reward."""

  def __call__(self, inputs):
    return parts.GAE(whiten=False)(inputs) - inputs.baseline


# Every source of state at once: minibatches shuffle, the penalty needs the reference and
# has a controller, as an entropy bonus has, the critic has an optimizer and learns alone at
# first, a baseline is kept, and a step takes more than one batch of prompts.
ALGORITHM = dataclasses.replace(
  algorithms.vapo(pretraining=1, epochs=2, minibatches=2),
  advantage=EstimateAboveBaseline(),
  kl=algorithms.KLPenalty(kl.k1, kl.AdaptiveController(0.1, 1.0, 64), "reward"),
  baseline=algorithms.MovingAverage(0.5),
  dynamic_sampling=algorithms.DynamicSampling(2),
  entropy=algorithms.EntropyBonus(AdaptiveController(target=9.0, step=0.1)),
  target_kl=0.5,
)
# Packed rows too, whose iterator holds texts that wait for the next batch.
SUPERVISED = dataclasses.replace(
  tiny.run_config().supervised, row_tokens=44, eval_every=4, microbatches=2
)
SHARED = {
  "algorithm": ALGORITHM,
  "learner": LearnerConfig(microbatches=2),
  "supervised": SUPERVISED,
}
CONFIG = tiny.run_config(**SHARED)


def run(workdir, config=CONFIG):
  return train(config, byte_tokenizer(), workdir, {"a": 1}, progress=False)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
  workdir = tmp_path_factory.mktemp("whole")
  return run(workdir), workdir


def assert_same_state(ours, theirs):
  for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
    np.testing.assert_array_equal(words(a), words(b))


def without_times(path):
  rows = read_lines(path)
  return [{k: v for k, v in row.items() if not k.startswith("time/")} for row in rows]


def test_files_of_a_run(whole):
  result, workdir = whole
  assert result.finished and result.progress == Progress("reinforcement", 5)
  assert int(result.state.step) == 5 and int(result.state.total_steps) == 11
  first, *rows = read_lines(workdir / "metrics.jsonl")
  assert {name for name in first if not name.startswith("data/")} == {
    "step",
    "eval/accuracy",
    "eval/accuracy_low",
    "eval/accuracy_high",
    "eval/pass@1",
    "eval/length",
    "eval/truncated",
    "eval/unscorable",
    "eval/reward/mean",
  } and first["step"] == 0
  assert [row["step"] for row in rows] == [1, 2, 3, 4, 5]
  for row in rows:
    assert row.keys() >= FIXED_NAMES
    assert all(np.isfinite(row[name]) for name in FIXED_NAMES)
    assert row["ratio/sampler_error"] < 1e-5
    assert row["groups/zero_variance"] < 1  # there is a signal
    assert (row["grad_norm"] > 1e-3) == (row["step"] > 1)  # at first the critic learns
    assert row["value/grad_norm"] > 0 and row["sampling/batches"] in (1, 2)
    assert ("eval/accuracy" in row) == (row["step"] in (2, 4, 5))
  samples = read_lines(workdir / "samples.jsonl")
  assert {(s["split"], s["step"]) for s in samples} == {
    ("held_out", 0),
    ("train", 1),
    ("train", 2),
    ("train", 4),
    ("train", 5),
    ("held_out", 5),
  }
  for sample in samples:
    assert len(sample["tokens"]) == len(sample["logp"]) <= 16
    assert (sample["advantages"] is not None) == (sample["split"] == "train")


# Warm start 6 steps, then 5: in the warm start, at its end, and in reinforcement, at a
# checkpoint and off one.
@pytest.mark.parametrize(
  ("stop_after", "number"),
  [(3, signal.SIGINT), (6, signal.SIGTERM), (8, signal.SIGTERM), (9, signal.SIGINT)],
)
def test_an_interrupted_run_ends_with_the_same_bits(
  whole, tmp_path, monkeypatch, stop_after, number
):
  calls = []

  def counted(method):
    def step(self, *args):
      calls.append(1)
      if len(calls) == stop_after:
        signal.raise_signal(number)
      return method(self, *args)

    return step

  monkeypatch.setattr(Stage, "step", counted(Stage.step))
  first = run(tmp_path)
  # The step is undone once its data is there.
  assert not first.finished and int(first.state.total_steps) == stop_after - 1
  second = run(tmp_path)
  assert second.finished and len(calls) == 11 + 1
  assert_same_state(second.state, whole[0].state)
  for name in ("supervised.jsonl", "metrics.jsonl", "samples.jsonl"):
    assert without_times(tmp_path / name) == without_times(whole[1] / name)


@pytest.mark.parametrize(
  ("stage", "metric"),
  [("supervised", "supervised/demonstrations"), ("metrics", "reward/mean")],
)
def test_died_between_checkpoints(whole, tmp_path, monkeypatch, stage, metric):
  real, died = JsonLines.scalars, []

  def dying(self, step, values):
    real(self, step, values)
    if step == 3 and metric in values and not died:
      died.append(step)
      raise MemoryError  # leaves a row that is past the last checkpoint

  monkeypatch.setattr(JsonLines, "scalars", dying)
  with pytest.raises(MemoryError):
    run(tmp_path)
  assert [row["step"] for row in read_lines(tmp_path / f"{stage}.jsonl")] == [0, 1, 2, 3]
  assert_same_state(run(tmp_path).state, whole[0].state)
  for name in ("supervised.jsonl", "metrics.jsonl"):
    assert without_times(tmp_path / name) == without_times(whole[1] / name)


def test_done_is_done_and_can_go_further(whole, tmp_path):
  longer = tiny.run_config(**SHARED, steps=7)
  again = run(whole[1])
  assert_same_state(again.state, whole[0].state)
  straight = run(tmp_path, longer)
  further = run(whole[1], longer)
  assert_same_state(further.state, straight.state)


def test_seed_decides(whole, tmp_path):
  other = run(tmp_path, tiny.run_config(**SHARED, seed=1))
  theirs = whole[0].state.params["params"]["embedding"]
  assert np.any(other.state.params["params"]["embedding"] != theirs)


def test_supervised_steps_are_logged(whole):
  rows = read_lines(whole[1] / "supervised.jsonl")
  assert [row["step"] for row in rows] == list(range(7))
  assert {row["step"] for row in rows if "eval/accuracy" in row} == {0, 4}
  for row in rows[1:]:
    assert row["loss"] > 0 and row["grad_norm"] > 0 and row["demonstrations"] >= 4
    assert 0 < row["tokens/learned"] < 4 * 44 and 0 <= row["tokens/padding"] < 0.6
  assert rows[-1]["loss"] < rows[1]["loss"]
  assert list((whole[1] / "tensorboard" / "supervised").iterdir())


def test_each_step_samples_anew(whole):
  samples = [s for s in read_lines(whole[1] / "samples.jsonl") if s["split"] == "train"]
  texts = {step: [s["completion"] for s in samples if s["step"] == step] for step in (2, 4)}
  assert texts[2] != texts[4]


def test_from_the_policy_of_another_run(whole, tmp_path):
  warm = tiny.SupervisedConfig(steps=0)
  config = tiny.run_config(
    algorithm=algorithms.ppo(epochs=1),
    init_from_run=str(whole[1]),
    critic=CriticConfig(start=str(whole[1])),
    supervised=warm,
    steps=1,
    optimizer=tiny.OptimizerConfig(learning_rate=0.0, warmup_steps=0),
    seed=3,
  )
  state = run(tmp_path / "new", config).state
  theirs = load_params(tiny.MODEL, make_mesh(), whole[1])
  assert_same_state(state.params, theirs)  # at a learning rate of 0 it stays there
  assert_same_state(state.frozen["reference"], theirs)
  one_step = np.abs(
    np.asarray(state.critic_params["params"]["decoder"]["embedding"])
    - np.asarray(theirs["params"]["embedding"])
  )
  assert one_step.max() < 1e-3
  # Once it has a checkpoint of its own, the other run may go.
  gone = dataclasses.replace(config, init_from_run="gone", steps=1)
  assert train(gone, byte_tokenizer(), tmp_path / "new", {"a": 1}, progress=False).finished


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"init_from_run": "nowhere"}, "init_from_run: nowhere holds no checkpoints; give the"),
    (
      {"algorithm": algorithms.ppo(), "critic": CriticConfig(start="nowhere")},
      "critic.start: nowhere holds no checkpoints",
    ),
  ],
)
def test_another_run_that_is_not_there(tmp_path, changes, message):
  with pytest.raises(UserError, match=message):
    run(tmp_path / "run", tiny.run_config(**changes))
  assert list(tmp_path.iterdir()) == []


def test_another_run_of_another_shape(whole, tmp_path):
  wider = dataclasses.replace(tiny.CONFIG, mlp_dim=64)
  config = tiny.run_config(model=wider, init_from_run=str(whole[1]))
  with pytest.raises(UserError, match="does not fit the configuration: params"):
    run(tmp_path / "run", config)
  assert list(tmp_path.iterdir()) == []


def test_another_run_of_a_models_directory_has_another_tokenizer(whole, tmp_path):
  saved = {"model": dataclasses.asdict(tiny.CONFIG) | {"path": "some/model"}}
  shutil.copytree(whole[1], tmp_path / "other")
  (tmp_path / "other" / "config.json").write_text(json.dumps(saved))
  config = tiny.run_config(init_from_run=str(tmp_path / "other"))
  with pytest.raises(UserError, match="init_from_run: its policy has model.path"):
    run(tmp_path / "run", config)


def test_another_run_of_another_model_of_the_same_shape(whole, tmp_path):
  saved = {"model": dataclasses.asdict(tiny.CONFIG) | {"rope_theta": 500.0}}
  shutil.copytree(whole[1], tmp_path / "other")
  (tmp_path / "other" / "config.json").write_text(json.dumps(saved))
  config = tiny.run_config(init_from_run=str(tmp_path / "other"))
  with pytest.raises(
    UserError, match=r"init_from_run: its model.rope_theta is 500\.0, and"
  ):
    run(tmp_path / "run", config)


def test_fewer_steps_than_done_are_rejected(whole, tmp_path):
  fewer = tiny.run_config(**SHARED, steps=3)
  record, message = {"a": 1, "steps": 3}, r"steps is 3, but the run in .* has done \d steps"
  with pytest.raises(UserError, match=message):
    train(fewer, byte_tokenizer(), whole[1], record, progress=False)
  assert read_config(whole[1]) == {"a": 1}  # unchanged


def test_in_another_thread(whole, tmp_path):
  with ThreadPoolExecutor() as threads:
    result = threads.submit(run, tmp_path).result()
  assert_same_state(result.state, whole[0].state)


def test_tensorboard_has_what_a_checkpoint_has(whole):
  files = (whole[1] / "tensorboard").glob("events*")
  written = b"".join(path.read_bytes() for path in files)
  assert all(name.encode() in written for name in FIXED_NAMES - {"step"})
