"""Single runs: what they trace, what stops them, and what they leave behind."""

import dataclasses
import signal

import jax.numpy as jnp
import numpy as np
import pytest

from pgax import algorithms, surrogates
from pgax.data import byte_tokenizer
from pgax.errors import UserError
from pgax.evaluation import EvaluationConfig
from pgax.learner import LearnerConfig
from pgax.runs.json_lines import read_lines
from pgax.sampling import decode
from pgax.training import Progress, train
from pgax.training.health import DivergedError, SkippedUpdateWarning
from pgax.training.loop import Stage
from pgax.training.run import PolicyRun
from tests import tiny


def run(workdir, config):
  return train(config, byte_tokenizer(), workdir, {"a": 1}, progress=False)


@dataclasses.dataclass(frozen=True)
class Shy:
  """A surrogate made here: the policy gradient, for good completions only."""

  floor: float = 0.0

  def __call__(self, logp, batch):
    return surrogates.policy_gradient(logp, jnp.maximum(batch.advantages, self.floor))


def test_an_algorithm_made_outside_the_package(tmp_path):
  plain = algorithms.grpo(kl_coef=0.0)
  mine = dataclasses.replace(plain, surrogate=Shy())
  result = run(tmp_path / "mine", tiny.run_config(algorithm=mine, steps=3))
  rows = read_lines(tmp_path / "mine" / "metrics.jsonl")[1:]
  assert result.finished and any(row["loss/policy"] > 0.1 for row in rows)
  other = run(tmp_path / "plain", tiny.run_config(algorithm=plain, steps=3))
  theirs = other.state.params["params"]["embedding"]
  assert np.any(result.state.params["params"]["embedding"] != theirs)


def test_without_a_warm_start(tmp_path):
  warm = tiny.SupervisedConfig(steps=0)
  result = run(tmp_path, tiny.run_config(supervised=warm, steps=1))
  assert result.finished and int(result.state.total_steps) == 1


def test_no_steps_is_an_evaluation(tmp_path):
  config = tiny.run_config(
    steps=0, evaluation=EvaluationConfig(problems=6, samples=3, temperature=1.0)
  )
  first = run(tmp_path, config)
  assert first.finished and first.progress == Progress("reinforcement", 0)
  (row,) = read_lines(tmp_path / "metrics.jsonl")
  ks = [f"eval/{x}" for x in ("pass@1", "pass@2", "pass@3", "majority@2", "majority@3")]
  assert row["step"] == 0 and all(0 <= row[name] <= 1 for name in ks)
  # The draws of an evaluation are the same at any time: it is done again, to the digit.
  run(tmp_path, config)
  assert read_lines(tmp_path / "metrics.jsonl") == [row]
  run(tmp_path, dataclasses.replace(config, seed=1))
  assert read_lines(tmp_path / "metrics.jsonl") != [row]


def test_interrupted_before_the_first_evaluation_is_not_finished(tmp_path, monkeypatch):
  def stop(self, *args):
    signal.raise_signal(signal.SIGINT)
    return step(self, *args)

  step = Stage.step
  monkeypatch.setattr(Stage, "step", stop)
  assert not run(tmp_path, tiny.run_config(steps=0)).finished


def test_programs_are_traced_once_in_the_whole_run(tmp_path, monkeypatch):
  runs = []
  start = PolicyRun.stages
  monkeypatch.setattr(
    PolicyRun, "stages", lambda self, state: (runs.append(self), start(self, state))[1]
  )
  own = {"learner": LearnerConfig(logit_chunk=64)}  # shared with no other test
  run(tmp_path, tiny.run_config(steps=3, **own))
  run(tmp_path, tiny.run_config(steps=5, **own))  # continues from a checkpoint
  assert runs[0].steps is runs[1].steps
  assert runs[0].steps.supervised_step.program._cache_size() == 1
  assert runs[0].steps.policy_step.program._cache_size() == 1


def test_sampler_is_traced_once_a_shape(tmp_path):
  before = decode._decode._cache_size()
  odd = tiny.SamplingConfig(
    prompts_per_step=2, group_size=3, max_prompt_tokens=5, max_completion_tokens=15
  )
  run(tmp_path, tiny.run_config(sampling=odd, steps=5))
  assert decode._decode._cache_size() == before + 2  # for rollouts, and for evaluation


def test_a_rejected_run_leaves_no_files(tmp_path):
  alone = tiny.SamplingConfig(
    prompts_per_step=4, group_size=1, max_prompt_tokens=5, max_completion_tokens=16
  )
  with pytest.raises(UserError, match="group size is 1; GroupNormalized compares"):
    run(tmp_path / "run", tiny.run_config(sampling=alone))
  assert list(tmp_path.iterdir()) == []


@dataclasses.dataclass(frozen=True)
class Broken:
  """A surrogate that is nan."""

  def __call__(self, logp, batch):
    result = surrogates.policy_gradient(logp, batch.advantages)
    return result._replace(loss=result.loss * jnp.nan)


def test_a_run_that_only_goes_wrong_stops(tmp_path):
  algorithm = dataclasses.replace(algorithms.grpo(kl_coef=0.0), surrogate=Broken())
  config = tiny.run_config(algorithm=algorithm, steps=5, max_skipped=2)
  message = "at step 2, the last of 2 steps .* The last good checkpoint is 6,"
  with pytest.warns(SkippedUpdateWarning), pytest.raises(DivergedError, match=message):
    run(tmp_path, config)
  rows = read_lines(tmp_path / "metrics.jsonl")
  assert [row.get("update/skipped") for row in rows] == [None, 1, 1]
  assert rows[1]["param_norm"] == rows[2]["param_norm"]


def test_checkpoints_of_earlier_versions_are_rejected(tmp_path):
  import orbax.checkpoint as ocp

  manager = ocp.CheckpointManager((tmp_path / "checkpoints").absolute())
  state = ocp.args.StandardSave({"step": jnp.int32(3)})
  manager.save(3, args=ocp.args.Composite(state=state, positions=ocp.args.JsonSave({})))
  manager.close()
  with pytest.raises(UserError, match="has no data of a run that can be continued"):
    run(tmp_path, tiny.run_config())


def test_fewer_supervised_steps_than_done_are_rejected(tmp_path, monkeypatch):
  step, done = Stage.step, []

  def stop(self, *args):
    done.append(1)
    if len(done) == 5:  # which is undone
      signal.raise_signal(signal.SIGINT)
    return step(self, *args)

  monkeypatch.setattr(Stage, "step", stop)
  config = tiny.run_config()
  assert run(tmp_path, config).progress == Progress("supervised", 4)
  for steps in (3, 4):
    fewer = dataclasses.replace(config.supervised, steps=steps)
    message = f"supervised.steps is {steps}, but the run in .* has done 4 steps"
    with pytest.raises(UserError, match=message):
      run(tmp_path, dataclasses.replace(config, supervised=fewer))


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"steps": "5"}, "steps is '5'; it must be a whole number"),
    ({"steps": 2.5}, r"steps is 2\.5; it must be a whole number"),
    ({"seed": True}, "seed is True; it must be a whole number"),
    ({"reward": None}, "reward is None; it must be a function"),
    ({"evaluation": None}, "evaluation is None; it must be of type EvaluationConfig"),
    ({"sampling": {"group_size": 2}}, "must be of type SamplingConfig"),
  ],
)
def test_settings_of_wrong_types_are_named(changes, message):
  with pytest.raises(ValueError, match=message):
    tiny.run_config(**changes)


def test_a_reference_that_is_read_at_some_shapes_only(tmp_path):
  def sometimes(logp, batch):
    anchor = batch.ref_logp if logp.shape[-1] > 8 else batch.old_logp
    return surrogates.policy_gradient(logp - anchor, batch.advantages)

  algorithm = dataclasses.replace(algorithms.grpo(kl_coef=0.0), surrogate=sometimes)
  with pytest.raises(UserError, match="reads batch.ref_logp at some shapes only"):
    run(tmp_path / "run", tiny.run_config(algorithm=algorithm))
