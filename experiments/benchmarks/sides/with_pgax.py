"""pgax: samples by `sample`, and updates by the policy step of GRPO."""

import functools
import itertools
import platform
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.benchmarks import machine
from experiments.benchmarks.shape import Shape
from experiments.benchmarks.worker import Call, Work, serve
from pgax import algorithms
from pgax.distributed import make_mesh
from pgax.learner import (
  Learner,
  LearnerConfig,
  OptimizerConfig,
  init_state,
  make_policy_step,
)
from pgax.learner.optimizer import make_optimizer
from pgax.models import Decoder, DecoderConfig, hf
from pgax.models.parameters import init_params
from pgax.sampling import Options, sample
from pgax.types import Array, Feedback, PyTree, Rollout

NO_EOS = np.array([-1], np.int32)  # no completion ends before the limit


def decoder_config(shape: Shape) -> DecoderConfig:
  """Returns the model of a shape, which is a Llama that transformers can load."""
  return DecoderConfig(
    vocab_size=shape.vocab,
    num_layers=shape.layers,
    embed_dim=shape.embed,
    num_heads=shape.heads,
    num_kv_heads=shape.kv_heads,
    head_dim=shape.head_dim,
    mlp_dim=shape.hidden,
    scale_embeddings=False,
    dtype=shape.dtype,
    remat=shape.remat,
  )


def prompts(shape: Shape) -> tuple[Array, Array]:
  """Makes random prompts `[N, P]` without padding, and their mask. Token 0 is not used."""
  size = (shape.prompts, shape.prompt_len)
  tokens = jax.random.randint(jax.random.key(1), size, 1, shape.vocab)
  return tokens, jnp.ones(size, bool)


def rewards(shape: Shape) -> np.ndarray:
  """Returns rewards `[N, G]` that differ within every group of two or more."""
  row = np.arange(shape.group, dtype=np.float32) % 2
  return np.broadcast_to(row, (shape.prompts, shape.group)).copy()


def make_learner(shape: Shape) -> Learner:
  """Builds the learner of GRPO with one optimizer step per rollout."""
  return Learner(
    Decoder(decoder_config(shape)),
    algorithms.grpo(kl_coef=shape.beta),
    make_optimizer(OptimizerConfig(learning_rate=shape.lr, warmup_steps=0)),
    config=LearnerConfig(microbatches=shape.micro),
  )


class Policy(NamedTuple):
  """Parameters of a policy that is not trained."""

  params: PyTree


def build(shape: Shape, names: tuple[str, ...], folder: Path | None) -> Work:
  """Builds `generate`, `first_token`, `update` and the limits of the machine.

  Without `update` there is neither a reference nor an optimizer.

  Args:
    shape: sizes of model and batch.
    names: names of the calls to build.
    folder: folder to write the weights and the batch to, or None.

  Returns:
    The `Work`.
  """
  learner = make_learner(shape)
  if "update" in names:
    latest = [init_state(learner, make_mesh(), seed=0)]
  else:
    initialize = jax.jit(functools.partial(init_params, learner.model))
    latest = [Policy(initialize(jax.random.key(0)))]
  rollout = random_rollout(shape)
  if folder is not None:
    _export(folder, shape, latest[0].params, rollout)
  calls = {
    "generate": _make_sampler(shape, learner.model, latest, shape.gen_len),
    "first_token": _make_sampler(shape, learner.model, latest, 1),
    "update": _make_update(shape, learner, latest, rollout),
    **machine.limit_calls(shape.dtype),
  }
  calls = {name: call for name, call in calls.items() if name in names}
  facts = {
    "params": sum(x.size for x in jax.tree.leaves(latest[0].params)),
    "versions": {"jax": jax.__version__, "python": platform.python_version()},
    "device": jax.devices()[0].device_kind,
    "limit_work": machine.limit_work(),
  }
  limits = {name: calls.pop(name) for name in ("matmul", "copy") if name in calls}
  return Work(calls, facts, limits, machine.peak_bytes)


def random_rollout(shape: Shape) -> Rollout:
  """Makes completions of random tokens, of full length."""
  tokens, mask = prompts(shape)
  size = (shape.prompts, shape.group, shape.gen_len)
  completions = jax.random.randint(jax.random.key(2), size, 1, shape.vocab)
  logp = jnp.full(size, -np.log(shape.vocab), jnp.float32)
  return Rollout(
    prompt_tokens=tokens,
    prompt_mask=mask,
    tokens=completions,
    token_mask=jnp.ones(size, bool),
    action_mask=jnp.ones(size, bool),
    logp=logp,
    sample_logp=logp,
    finished=jnp.zeros(size[:2], bool),
  )


def _make_sampler(shape: Shape, model: Decoder, latest: list, max_tokens: int) -> Call:
  """Makes a function that samples with a new key at each call."""
  tokens, mask = prompts(shape)
  keys = map(jax.random.key, itertools.count(3))

  def draw() -> None:
    rollout = sample(
      model,
      latest[0].params,
      tokens,
      mask,
      next(keys),
      Options(NO_EOS),
      group=shape.group,
      max_tokens=max_tokens,
    )
    jax.block_until_ready(rollout)

  return draw


def _make_update(shape: Shape, learner: Learner, latest: list, rollout: Rollout) -> Call:
  """Makes a function that updates the state in `latest` and returns the gradient norm."""
  scores = jnp.asarray(rewards(shape))
  feedback = Feedback(scores, jnp.ones(scores.shape, bool))
  step = make_policy_step(learner)

  def update() -> float:
    # The step donates its state.
    latest[0], outputs = step(latest[0], rollout, feedback)
    jax.block_until_ready(latest[0])
    return float(outputs.metrics["grad_norm"])

  return update


def _export(folder: Path, shape: Shape, params: PyTree, rollout: Rollout) -> None:
  """Writes the weights, prompts, completions and rewards for other libraries."""
  folder.mkdir(parents=True, exist_ok=True)
  hf.save(folder / "model", decoder_config(shape), params, tokenizer=None)
  np.savez(
    folder / "batch.npz",
    prompts=np.asarray(rollout.prompt_tokens),
    completions=np.asarray(rollout.tokens),
    rewards=rewards(shape),
  )


if __name__ == "__main__":
  serve(build)
