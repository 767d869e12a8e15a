"""The small model, batches and runs that tests share."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh

from pgax import algorithms
from pgax.data import byte_tokenizer
from pgax.models import Decoder, DecoderConfig
from pgax.models.parameters import matrices
from pgax.models.partitioning import init_params
from pgax.tasks import addition
from pgax.training import (
  OptimizerConfig,
  RunConfig,
  SamplingConfig,
  SupervisedConfig,
)
from pgax.training.learner import Learner
from pgax.training.mesh import make_mesh
from pgax.training.sampler import Sampler, make_sampler
from pgax.training.state import init_state
from pgax.types import Feedback, Rollout

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


@functools.cache
def params(seed: int = 0):
  """Parameters of the tiny model, a little livelier than at initialisation."""
  fresh = init_params(MODEL, jax.random.key(seed))
  return jax.tree.map(
    lambda x, is_matrix: x * 1.5 if is_matrix else x, fresh, matrices(fresh)
  )


def prompts(lengths=(3, 5, 2, 4), width: int = 5):
  """Random right-padded prompts `[N, P]` and their mask."""
  rng = np.random.default_rng(0)
  mask = np.arange(width) < np.array(lengths)[:, None]
  return np.where(mask, rng.integers(3, 259, mask.shape), 0).astype(np.int32), mask


def rollout(n: int = 4, group: int = 4, length: int = 6, seed: int = 0) -> Rollout:
  """A made-up rollout: any tokens, any lengths from 1 on."""
  rng = np.random.default_rng(seed)
  tokens, mask = prompts(lengths=[2 + i % 4 for i in range(n)])
  lengths = rng.integers(1, length + 1, (n, group))
  real = np.arange(length) < lengths[..., None]
  logp = np.where(real, -rng.random(real.shape), 0).astype(np.float32)
  drawn = np.where(real, rng.integers(3, 259, real.shape), 0).astype(np.int32)
  arrays = (tokens, mask, drawn, real, logp, logp, lengths < length)
  return Rollout(*map(jnp.asarray, arrays))


def feedback(n: int = 4, group: int = 4, length: int = 6, seed: int = 0) -> Feedback:
  """Rewards of a few levels, all valid, and everything else that an algorithm may ask."""
  rng = np.random.default_rng(seed)
  rewards = rng.choice([0.0, 0.5, 1.0], (n, group)).astype(np.float32)
  greedy = rng.choice([0.0, 1.0], n).astype(np.float32)
  steps = rng.choice([0.0, 1.0], (n, group, length)).astype(np.float32)
  ends = rng.random((n, group, length)) < 0.5
  arrays = (rewards, np.ones((n, group), bool), greedy, steps * ends, ends)
  return Feedback(*map(jnp.asarray, arrays))


def values(n: int = 4, group: int = 4, length: int = 6, seed: int = 1):
  """Values of a critic, `[N, G, T]`."""
  drawn = np.random.default_rng(seed).random((n, group, length))
  return jnp.asarray(drawn, jnp.float32)


def learner(algorithm, optimizer=None) -> Learner:
  """The tiny model under an algorithm; plain gradient descent unless told otherwise."""
  return Learner(MODEL, algorithm, optimizer or optax.sgd(1.0))


def state(algorithm, optimizer=None, seed: int = 0):
  """A fresh state of that learner."""
  return init_state(learner(algorithm, optimizer), make_mesh(), seed)


def any_reward(prompt, completion, ground_truth, metadata) -> dict[str, float]:
  """A reward that an untrained model gets now and then: a bit of its text."""
  del prompt, ground_truth, metadata
  return {"reward": float(sum(map(ord, completion)) % 2)}


def sampler(mesh: Mesh | None = None, **settings) -> Sampler:
  """A sampler of the tiny model, on bytes."""
  config = SamplingConfig(**settings)
  return make_sampler(config, MODEL, byte_tokenizer(), mesh or make_mesh())


def run_config(**changes) -> RunConfig:
  """A run that takes seconds: one-digit sums, a handful of steps."""
  settings = {
    "name": "tiny",
    "task": addition(digits=1, forget_carry=0.5),
    "reward": any_reward,
    "algorithm": algorithms.grpo(),
    "model": CONFIG,
    "sampling": SamplingConfig(prompts=4, group=4, max_prompt_tokens=5, max_tokens=16),
    "optimizer": OptimizerConfig(warmup_steps=2),
    "supervised": SupervisedConfig(
      steps=6,
      batch_size=4,
      optimizer=OptimizerConfig(learning_rate=3e-3, warmup_steps=2, decay_steps=6),
    ),
    "steps": 5,
    "eval_every": 2,
    "eval_problems": 6,
    "checkpoint_every": 2,
    "samples_every": 2,
  }
  return RunConfig(**(settings | changes))
