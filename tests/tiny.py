"""The small model, and the runs of it, that tests share."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh

from pgax import algorithms
from pgax.data import byte_tokenizer
from pgax.distributed import make_mesh
from pgax.learner import Learner, LearnerConfig, init_state, make_policy_step
from pgax.models import Decoder, DecoderConfig
from pgax.models.lora import PolicyParams
from pgax.models.parameters import init_params, matrices
from pgax.rollout import Rollouts, Sampler, make_sampler
from pgax.tasks import addition
from pgax.training import (
  CheckpointConfig,
  EvaluationConfig,
  OptimizerConfig,
  RunConfig,
  SamplingConfig,
  SupervisedConfig,
)
from pgax.types import Step
from tests.arrays import feedback, prompts, rollout, values

__all__ = ["feedback", "prompts", "rollout", "values"]  # of arrays, for one import

CONFIG = DecoderConfig(
  vocab_size=260,
  num_layers=2,
  embed_dim=32,
  num_heads=4,
  num_kv_heads=2,
  head_dim=8,
  mlp_dim=48,
)
MODEL = Decoder(CONFIG)
_PLAIN = algorithms.grpo(kl_coef=0.0)
_DESCENT = optax.sgd(1.0)


@functools.partial(jax.jit, static_argnums=(0, 1))
def fresh(model, seed: int = 0):
  """Parameters of any model by one program, instead of one for each operation."""
  return init_params(model, jax.random.key(seed))


@functools.cache
def params(seed: int = 0):
  """Parameters of the tiny model, scaled up so that its predictions vary more."""
  unscaled = fresh(MODEL, seed)
  return jax.tree.map(
    lambda x, is_matrix: x * 1.5 if is_matrix else x, unscaled, matrices(unscaled)
  )


def learner(algorithm, optimizer=_DESCENT, **settings) -> Learner:
  """The tiny model with an algorithm; plain gradient descent by default."""
  return Learner(MODEL, algorithm, optimizer, **settings)


@functools.cache
def policy_step(algorithm, optimizer=_DESCENT, **settings):
  """The jitted step of that learner, traced once for all tests of a module."""
  return make_policy_step(learner(algorithm, optimizer, **settings))


def state(algorithm, optimizer=_DESCENT, seed: int = 0, **settings):
  """A fresh state of that learner.

  Only a program of the parameters is compiled, which all optimizers and all algorithms
  without a critic share.
  """
  made = learner(algorithm, optimizer, **settings)
  if made.critic:
    return init_state(made, make_mesh(), seed)
  config = dataclasses.replace(
    LearnerConfig(keep_reference=bool(made.frozen_policies)),
    param_dtype=made.config.param_dtype,
    reference_dtype=made.config.reference_dtype,
  )
  start = _start(Learner(MODEL, _PLAIN, _DESCENT, lora=made.lora, config=config), seed)
  return jax.tree.map(jnp.copy, start).replace(
    opt_state=made.optimizer.init(start.params), algorithm_state=algorithm.init()
  )


@functools.cache
def _start(plain: Learner, seed: int):
  return init_state(plain, make_mesh(), seed)


def any_reward(prompt, completion, ground_truth, metadata) -> dict[str, float]:
  """A reward that an untrained model gets half of the time: the parity of its text."""
  del prompt, ground_truth, metadata
  return {"reward": float(sum(map(ord, completion)) % 2)}


def sampler(mesh: Mesh | None = None, model: DecoderConfig = CONFIG, **settings) -> Sampler:
  """A sampler of the tiny model, with the byte tokenizer."""
  config = SamplingConfig(**settings)
  return make_sampler(config, Decoder(model), byte_tokenizer(), mesh or make_mesh())


class Prompts:
  """Batches of prompts by a function of their number, as a data iterator."""

  def __init__(self, batch):
    self.batch, self.batches = batch, 0

  def __next__(self):
    self.batches += 1
    return self.batch(self.batches)

  def get_state(self):
    return self.batches

  def set_state(self, state):
    self.batches = state


def rollouts(config: RunConfig, sampler, runner, prompts, reward_model=None) -> Rollouts:
  """The on-policy source of a run, with parts that a test chooses."""
  return Rollouts(
    sampler=sampler,
    runner=runner,
    prompts=prompts,
    sampling=config.sampling,
    scoring=config.scoring,
    dynamic_sampling=config.trained_algorithm.dynamic_sampling,
    greedy_baseline=config.trained_algorithm.greedy_baseline,
    step_reward=config.step_reward,
    components=config.trained_algorithm.components,
    reward_model=reward_model,
  )


def experience(source, seed: int = 0, params_=None):
  """The experience of the first step of a run, from the tiny model by default."""
  trained = params() if params_ is None else params_
  return source.next(PolicyParams((), trained), Step(0, 0, jax.random.key(seed)))


def run_config(**changes) -> RunConfig:
  """A run of one-digit sums that takes seconds."""
  settings = {
    "name": "tiny",
    "task": addition(digits=1, forget_carry=0.5),
    "reward": any_reward,
    "algorithm": algorithms.grpo(),
    "model": CONFIG,
    "sampling": SamplingConfig(
      prompts_per_step=4, group_size=4, max_prompt_tokens=5, max_completion_tokens=16
    ),
    "optimizer": OptimizerConfig(warmup_steps=2),
    "supervised": SupervisedConfig(
      steps=6,
      batch_size=4,
      optimizer=OptimizerConfig(learning_rate=3e-3, warmup_steps=2, decay_steps=6),
    ),
    "steps": 5,
    "evaluation": EvaluationConfig(every=2, problems=6),
    "checkpoints": CheckpointConfig(every=2),
    "samples_every": 2,
  }
  return RunConfig(**(settings | changes))
