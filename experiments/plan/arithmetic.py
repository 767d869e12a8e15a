"""Estimates a step by arithmetic: memory, operations and communication of devices.

Sizes are those of one device. Nothing is compiled, and no devices are needed.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh

from pgax.distributed.partitioning import (
  batch_shards,
  decoding_shardings,
  device_bytes,
  placed,
)
from pgax.learner.config import StepConfig
from pgax.learner.learner import Learner, make_learner
from pgax.learner.microbatches import RowPlan, plan_rows
from pgax.learner.state import TrainState, abstract_state
from pgax.models import Decoder, DecoderConfig
from pgax.models.flops import token_flops
from pgax.models.parameters import cast_matrices, init_params
from pgax.training import RunConfig, with_settings
from pgax.training.batches import prompts_computed
from pgax.types import PyTree

# Copies of an array that are alive at once, as the compiler for TPUs v5e keeps
# them; see docs/scaling.md.
_LOGITS_COPIES = 2  # of a chunk: products and their gradient
_FEED_FORWARD_COPIES = 6  # of the widest activations of a layer, and of their gradients
_READ_COPIES = 4.5  # of hidden states of prompts that all devices of `fsdp` read together
_ATTENTION_COPIES = 8  # of queries, in float32: keys, values, outputs, sums and gradients


class Sizes(NamedTuple):
  """Numbers of parameters that a device multiplies by, all devices of `fsdp` together.

  Attributes:
    layers: matrices of the layers.
    vocabulary: the output matrix.
  """

  layers: float
  vocabulary: float


@dataclasses.dataclass(frozen=True)
class Job:
  """A run on a mesh, and the plan of its rows.

  Attributes:
    config: configuration of the run, dtypes as on the devices.
    mesh: the mesh, without devices.
  """

  config: RunConfig
  mesh: AbstractMesh

  @property
  def learner(self) -> Learner:
    """The learner of the run."""
    return _learner(self.config.step_config)

  @property
  def state(self) -> TrainState:
    """Shapes and shardings of the state, which do not depend on how it is updated."""
    undivided = {"learner.microbatches": 1, "learner.logit_chunk": 1}
    return _state(with_settings(self.config.step_config, undivided), self.mesh)

  @property
  def rows(self) -> RowPlan:
    """Division of the completions of an optimizer step."""
    sampling = self.config.sampling
    prompts = self.prompts // self.config.trained_algorithm.minibatches
    learner = dataclasses.replace(self.learner, lanes=self.shards)
    return plan_rows(
      learner, (prompts, sampling.group_size, sampling.max_completion_tokens)
    )

  @property
  def prompts(self) -> int:
    """Number of prompts of a step, with those that pad it for the devices."""
    return prompts_computed(self.config, self.mesh)

  @property
  def shards(self) -> int:
    """Number of devices that rows are sharded over."""
    return batch_shards(self.mesh)

  @property
  def model_axis(self) -> int:
    """Number of devices that heads, feed-forward and vocabulary are sharded over."""
    return self.mesh.shape["model"]

  def divided(self, count: int) -> float:
    """Returns a device's part of heads or columns; all, if they can't be divided."""
    return count / (self.model_axis if count % self.model_axis == 0 else 1)

  @property
  def prompt_tokens(self) -> float:
    """Tokens of prompts that a device reads at a time."""
    plan, sampling = self.rows, self.config.sampling
    return plan.prompts * sampling.max_prompt_tokens / (plan.prompt_chunks * self.shards)

  @property
  def completions(self) -> float:
    """Completions of a device in a microbatch."""
    plan = self.rows
    return plan.prompts * plan.group / (plan.microbatches * self.shards)

  @property
  def tokens(self) -> float:
    """Tokens of completions of a device in a microbatch."""
    return self.completions * self.config.sampling.max_completion_tokens

  @property
  def itemsize(self) -> int:
    """Bytes of an activation."""
    return jnp.dtype(self.config.model.dtype).itemsize


def sizes(job: Job) -> Sizes:
  """Counts the parameters of matrices that a device multiplies by."""
  c = job.config.model
  heads = job.divided(c.num_heads) + job.divided(c.num_kv_heads)
  attention = 2 * c.embed_dim * c.head_dim * heads
  feed_forward = 3 * c.embed_dim * job.divided(c.mlp_dim) * max(c.num_experts, 1)
  vocabulary = c.vocab_size * c.embed_dim / job.model_axis
  return Sizes(c.num_layers * (attention + feed_forward), vocabulary)


def update_memory(job: Job) -> dict[str, float]:
  """Returns the bytes of an optimizer step on a device, at its peak, by kind."""
  c, config, plan = job.config.model, job.config, job.rows
  state = job.state
  gradients = device_bytes((state.params, state.critic_params), config.learner.grad_dtype)
  width = c.embed_dim * job.itemsize
  prompts = plan.prompts * config.sampling.max_prompt_tokens / job.shards
  kept_prompts = job.prompt_tokens if plan.prompt_chunks > 1 else prompts
  vocabulary = sizes(job).vocabulary
  # Of several chunks, the gradient of one and the sum of all.
  several = config.sampling.max_completion_tokens > config.learner.logit_chunk
  copies = 0 if config.lora.rank else 1 + several
  at_end = {
    "the output matrix's gradient": copies * 4 * vocabulary,
    "the output matrix": vocabulary * job.itemsize,
    "logits of a chunk": _LOGITS_COPIES * _logits_bytes(job),
  }
  in_layer = _layer_bytes(job, max(job.tokens, job.prompt_tokens))
  return {
    "parameters": device_bytes((state.base, state.params)),
    "parameters of earlier steps": _earlier_bytes(job),
    "moments": device_bytes((state.opt_state, state.critic_opt_state)),
    "reference": device_bytes(state.frozen),
    "critic": device_bytes(state.critic_params),
    "gradients": 2 * gradients,  # of a microbatch, and their sum
    "layer inputs": c.num_layers * (job.tokens + kept_prompts) * width
    if c.remat
    else c.num_layers * sum(_layer_bytes(job, job.tokens + kept_prompts).values()) / 2,
    "prompts": prompts * _cache_bytes(job),
    **max(at_end, in_layer, key=total),
  }


def _layer_bytes(job: Job, tokens: float) -> dict[str, float]:
  """Bytes of the activations of one layer in its backward pass, and of its matrices."""
  c = job.config.model
  heads = job.divided(c.num_heads)
  wide = job.divided(c.mlp_dim) * (c.experts_per_token or 1)
  matrices = sizes(job).layers / c.num_layers
  return {
    "matrices of a layer": 2 * matrices * (job.itemsize + 2),
    "feed-forward of a layer": _FEED_FORWARD_COPIES * tokens * wide * job.itemsize,
    "attention of a layer": _ATTENTION_COPIES * tokens * heads * c.head_dim * 4,
  }


def sampling_memory(job: Job) -> dict[str, float]:
  """Returns the bytes on a device while completions are sampled, by kind."""
  c, config = job.config.model, job.config
  sampling = config.sampling
  prompts = job.prompts / config.scoring.pipeline_chunks
  rows = (sampling.slots or prompts * sampling.group_size) / job.shards
  prompts /= job.shards
  tokens = prompts * sampling.max_prompt_tokens + rows * sampling.max_completion_tokens
  read = prompts * min(sampling.max_prompt_tokens, 512) * job.mesh.shape["fsdp"]
  reading = {"prompts being read": _READ_COPIES * read * c.embed_dim * job.itemsize}
  decoding = {
    "keys and values": tokens * _cache_bytes(job),
    "logits": _LOGITS_COPIES * rows * c.vocab_size * 4,
  }
  return {
    "the state": device_bytes(job.state),
    "parameters of earlier steps": _earlier_bytes(job),
    "parameters for decoding": device_bytes(_decoding(c, job.mesh)),
    **max(reading, decoding, key=total),
  }


def _earlier_bytes(job: Job) -> float:
  """Bytes of the parameters that rollouts in flight are drawn with, that of a step too."""
  lag = job.config.sampling.lag
  return (lag + 1) * device_bytes(job.state.params) if lag else 0.0


def operations(job: Job) -> dict[str, float]:
  """Returns the floating-point operations of a step on a device."""
  config, c = job.config, job.config.model
  sampling, algorithm = config.sampling, config.trained_algorithm
  # Prompts that pad a step for the devices cost as much as others.
  rows, length = job.prompts * sampling.group_size, sampling.max_completion_tokens
  prompt = sampling.max_prompt_tokens
  once = rows * length * token_flops(c, prompt + length / 2)
  once += job.prompts * prompt * token_flops(c, prompt / 2)
  learner = job.learner
  passes = len(learner.frozen_policies) + int(algorithm.needs_old_logp)
  passes += int(bool(algorithm.critic))  # its values
  updates = 3 + int(c.remat)  # forward, backward, and forward again
  updates *= 2 if algorithm.critic else 1
  return {
    "sampling": once / job.mesh.size,
    "update": once * (passes + updates * algorithm.epochs) / job.mesh.size,
  }


def collective_bytes(job: Job) -> dict[str, float]:
  """Returns the bytes of results of collectives of an update on a device, by kind."""
  plan, model = job.rows, job.model_axis
  count, algorithm = sizes(job), job.config.trained_algorithm
  reads, parts = plan.prompt_chunks, plan.microbatches
  again = reads if reads > 1 else 0  # prompts in parts are read again, going back
  frozen = len(job.learner.frozen_policies) + int(algorithm.needs_old_logp)
  steps = algorithm.epochs * algorithm.minibatches
  forward = (frozen * algorithm.minibatches + steps) * (reads + parts)
  backward = steps * (reads + parts + again)
  result = {}
  if job.mesh.shape["fsdp"] > 1:
    result["parameters, collected"] = (forward + backward) * count.layers * job.itemsize + (
      frozen * algorithm.minibatches + steps
    ) * parts * count.vocabulary * job.itemsize
  if job.shards > 1 and not job.config.lora.rank:
    layers = (reads + parts) * count.layers
    result["gradients, summed"] = 4 * steps * (layers + parts * count.vocabulary)
  if model > 1:
    result["activations, summed"] = _activation_sums(job, frozen, steps)
  result["rows against columns of the embedding"] = _exchanges(job, frozen, steps)
  return result


def _activation_sums(job: Job, frozen: int, steps: int) -> float:
  """Sums over `model` after attention and feed-forward: twice a pass, and going back."""
  c, sampling = job.config.model, job.config.sampling
  tokens = job.prompts * sampling.group_size * sampling.max_completion_tokens
  tokens += job.prompts * sampling.max_prompt_tokens
  tokens /= job.shards
  passes = (
    2 * frozen + (4 + 2 * int(c.remat)) * steps / job.config.trained_algorithm.minibatches
  )
  return passes * c.num_layers * tokens * c.embed_dim * job.itemsize


def _exchanges(job: Job, frozen: int, steps: int) -> float:
  """Rows of all columns for columns of all rows, where the embedding is looked up."""
  if job.mesh.shape["fsdp"] == 1:
    return 0.0
  c, sampling = job.config.model, job.config.sampling
  tokens = job.prompts * sampling.group_size * sampling.max_completion_tokens
  tokens /= job.shards
  passes = frozen + 2 * steps / job.config.trained_algorithm.minibatches
  return passes * tokens * c.embed_dim * job.itemsize


@functools.lru_cache(maxsize=8)
def _learner(config: StepConfig) -> Learner:
  return make_learner(config)


@functools.lru_cache(maxsize=8)
def _state(config: StepConfig, mesh: AbstractMesh) -> TrainState:
  return abstract_state(_learner(config), mesh)


@functools.lru_cache(maxsize=8)
def _decoding(config: DecoderConfig, mesh: AbstractMesh) -> PyTree:
  """Parameters as decoding reads them."""
  model = Decoder(config)
  shapes = jax.eval_shape(
    lambda: cast_matrices(init_params(model, jax.random.key(0)), config.dtype)
  )
  return placed(shapes, decoding_shardings(model, mesh))


def _logits_bytes(job: Job) -> float:
  c, config = job.config.model, job.config
  chunk = min(config.learner.logit_chunk, config.sampling.max_completion_tokens)
  return 4 * job.completions * chunk * c.vocab_size / job.model_axis


def _cache_bytes(job: Job) -> float:
  """Bytes of the keys and values of a token."""
  c = job.config.model
  return 2 * c.num_layers * job.divided(c.num_kv_heads) * c.head_dim * job.itemsize


def total(parts: Mapping[str, float]) -> float:
  """Sums the parts of a table."""
  return sum(parts.values())


def with_dtypes(config: DecoderConfig, platform: str) -> DecoderConfig:
  """Resolves `auto` dtypes for devices that are not there."""
  if config.dtype != "auto":
    return config
  return dataclasses.replace(config, dtype="float32" if platform == "cpu" else "bfloat16")
