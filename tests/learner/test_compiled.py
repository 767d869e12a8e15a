"""Compiled steps: their settings are their key, and what is not used is not computed."""

import dataclasses
import inspect
import sys

import jax
import pytest

from pgax import algorithms
from pgax.distributed import make_mesh
from pgax.distributed.partitioning import shardings_of
from pgax.learner import (
  LearnerConfig,
  OptimizerConfig,
  StepConfig,
  compiled_steps,
  make_learner,
  make_policy_step,
)
from pgax.learner.state import abstract_state
from pgax.models.lora import LoraConfig
from pgax.training import RunConfig, SupervisedConfig
from tests import tiny

CONFIG = StepConfig(tiny.CONFIG, algorithms.grpo(), supervised_microbatches=2)
CHANGES = {
  "model": dataclasses.replace(tiny.CONFIG, rope_theta=5.0),
  "algorithm": algorithms.grpo(clip_high=0.3),
  "lora": LoraConfig(rank=2),
  "optimizer": OptimizerConfig(learning_rate=0.5),
  "critic_optimizer": OptimizerConfig(learning_rate=0.5),
  "temperature": 0.7,
  "learner": LearnerConfig(logit_chunk=3),
  "supervised_optimizer": OptimizerConfig(learning_rate=0.5),
  "supervised_microbatches": 4,
  "normalize_constant": 9.0,
  "prompts": 6,
}


def test_equal_settings_share_their_steps_and_others_do_not():
  mesh = make_mesh()
  steps = compiled_steps(CONFIG, mesh)
  assert compiled_steps(dataclasses.replace(CONFIG), mesh) is steps
  assert CHANGES.keys() == {field.name for field in dataclasses.fields(StepConfig)}
  for name, value in CHANGES.items():
    assert compiled_steps(dataclasses.replace(CONFIG, **{name: value}), mesh) is not steps


def test_a_run_takes_every_setting_of_its_steps_from_its_own():
  """A changed setting of a run is a changed key, unless no step depends on it."""
  run = tiny.run_config()
  changes = {
    "model": CHANGES["model"],
    "algorithm": CHANGES["algorithm"],
    "lora": CHANGES["lora"],
    "optimizer": CHANGES["optimizer"],
    "critic": dataclasses.replace(run.critic, optimizer=CHANGES["optimizer"]),
    "learner": CHANGES["learner"],
    "sampling": dataclasses.replace(run.sampling, temperature=0.7),
    "supervised": dataclasses.replace(run.supervised, normalize_constant=9.0),
  }
  for name, value in changes.items():
    assert dataclasses.replace(run, **{name: value}).step_config != run.step_config, name
  other = dataclasses.replace(run, seed=3, steps=9, samples_every=1)
  assert other.step_config == run.step_config
  assert isinstance(run, RunConfig)


def test_an_algorithm_without_a_hash_works():
  @dataclasses.dataclass(eq=True)
  class Unhashable:
    def __call__(self, logp, batch):
      return algorithms.parts.Clipped()(logp, batch)

  algorithm = dataclasses.replace(algorithms.grpo(), surrogate=Unhashable())
  with pytest.raises(TypeError):
    hash(algorithm)
  steps = compiled_steps(dataclasses.replace(CONFIG, algorithm=algorithm), make_mesh())
  assert steps.learner.algorithm is algorithm


def lowered(algorithm, **config):
  learner = tiny.learner(algorithm, config=LearnerConfig(**config))
  state = abstract_state(learner, make_mesh())
  step = make_policy_step(learner, shardings_of(state))
  return state, step.lower(state, tiny.rollout(), tiny.feedback()).cost_analysis()["flops"]


def test_without_use_there_is_no_reference_and_no_pass():
  plain = algorithms.grpo(kl_coef=0.0)
  state, flops = lowered(plain)
  assert state.frozen == {}
  with_reference, more = lowered(plain, keep_reference=True)
  assert jax.tree.structure(with_reference.frozen["reference"]) == jax.tree.structure(
    state.params
  )
  forward = more - flops  # a pass over the reference
  assert forward > 0.1 * flops
  _, penalized = lowered(algorithms.grpo(kl_coef=0.1))
  assert penalized == pytest.approx(more, rel=0.02)
  _, two_epochs = lowered(algorithms.grpo(kl_coef=0.0, epochs=2))  # needs old_logp
  assert two_epochs - flops == pytest.approx(forward, rel=0.1)


def test_at_most_six_calls_lie_between_the_loop_and_the_loss(tmp_path):
  from pgax.data import byte_tokenizer
  from pgax.training import train

  stacks = []

  @dataclasses.dataclass(frozen=True)
  class Spy:
    def __call__(self, logp, batch):
      frame, names = sys._getframe(), []
      while frame:
        if "/pgax/" in frame.f_code.co_filename:
          names.append(frame.f_code.co_qualname)
        frame = frame.f_back
      stacks.append(names[::-1])
      return algorithms.parts.Clipped()(logp, batch)

  algorithm = dataclasses.replace(algorithms.grpo(), surrogate=Spy())
  config = tiny.run_config(algorithm=algorithm, steps=1, supervised=SupervisedConfig())
  train(config, byte_tokenizer(), tmp_path, progress=False)
  in_the_loop = [x for x in stacks if "run_stage" in x]  # it is traced before, too
  stack = max(in_the_loop, key=len)
  calls = stack[stack.index("run_stage") + 1 : stack.index("loss") + 1]
  assert calls == [
    "Stage.step",
    "_build.<locals>.update",
    "policy_step",
    "optimizer_step",
    "optimizer_step.<locals>.add_microbatch",
    "policy_objective",
    "loss",
  ]


def test_steps_are_built_from_their_settings_and_devices_alone():
  assert list(inspect.signature(make_learner).parameters) == ["config", "mesh"]


def test_a_sweep_over_numbers_is_traced_once():
  @dataclasses.dataclass(frozen=True)
  class Counted:
    clip_high: float = 0.2

    def __call__(self, logp, batch):
      traced.append(self.clip_high)
      return algorithms.parts.Clipped(0.2, self.clip_high)(logp, batch)

  traced, counts, programs, mesh = [], [], set(), make_mesh()
  for clip_high, rate, temperature in ((0.2, 1e-3, 1), (0.3, 1e-3, 0.7), (0.3, 2e-3, 1.0)):
    algorithm = dataclasses.replace(algorithms.grpo(), surrogate=Counted(clip_high))
    settings = {
      "algorithm": algorithm,
      "optimizer": OptimizerConfig(learning_rate=rate),
      "temperature": temperature,
    }
    step = compiled_steps(dataclasses.replace(CONFIG, **settings), mesh).policy_step
    assert step.numbers["algorithm.surrogate.clip_high"] == clip_high
    programs.add(step.program)
    before = len(traced)
    state = compiled_steps(CONFIG, mesh).abstract
    step.lower(state, tiny.rollout(), tiny.feedback())
    counts.append(len(traced) - before)
  assert len(programs) == 1
  assert counts[0] > 0 and counts[1:] == [0, 0]
