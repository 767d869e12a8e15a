"""The real train step and sampler, compiled for devices that need not be there."""

import time
from collections.abc import Iterator
from typing import NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from pgax.algorithms.checks import input_shapes
from pgax.distributed.collectives import Collective, collectives
from pgax.distributed.partitioning import (
  batch_sharding,
  batch_shards,
  decoding_layout,
  decoding_shardings,
  placed,
)
from pgax.errors import UserError
from pgax.learner.compiled import compiled_steps
from pgax.models import Decoder
from pgax.models.parameters import cast_matrices, init_params
from pgax.sampling import Options
from pgax.sampling.decode import lower_sample
from pgax.training import RunConfig
from pgax.training.batches import prompts_computed
from pgax.types import Feedback, PyTree, Rollout


class Program(NamedTuple):
  """A compiled program.

  Attributes:
    name: `update` or `sampling`.
    peak: bytes on a device at its peak, arguments included.
    collectives: its collectives.
    seconds: time to compile.
  """

  name: str
  peak: int
  collectives: list[Collective]
  seconds: float


def compile_all(config: RunConfig, mesh: Mesh) -> Iterator[Program]:
  """Compiles the policy step and the sampler of a run.

  Args:
    config: configuration of the run, dtypes as on the devices.
    mesh: mesh of devices, which may be of a topology.

  Yields:
    The sampler, which takes less time, and the update.

  Raises:
    UserError: if a program does not fit; with the compiler's figures.
  """
  rollout, feedback = _data(config, mesh)
  yield _compiled("sampling", _lower_sampling(config, mesh, rollout))
  steps = compiled_steps(config.step_config, mesh)
  yield _compiled("update", steps.policy_step.lower(steps.abstract, rollout, feedback))


def _compiled(name: str, lowered: jax.stages.Lowered) -> Program:
  start = time.perf_counter()
  try:
    compiled = lowered.compile()
  except jax.errors.JaxRuntimeError as error:
    if "RESOURCE_EXHAUSTED" not in str(error):
      raise
    raise UserError(f"{name} does not fit: {str(error).splitlines()[0]}") from None
  memory = compiled.memory_analysis()
  return Program(
    name,
    int(memory.peak_memory_in_bytes),
    collectives(compiled.as_text()),
    time.perf_counter() - start,
  )


def _lower_sampling(config: RunConfig, mesh: Mesh, rollout: Rollout) -> jax.stages.Lowered:
  sampling, plain = config.sampling, Decoder(config.model)

  def init() -> PyTree:
    return cast_matrices(init_params(plain, jax.random.key(0)), config.model.dtype)

  keys = jax.eval_shape(
    lambda: jax.random.split(jax.random.key(0), prompts_computed(config, mesh))
  )
  return lower_sample(
    Decoder(config.model, layout=decoding_layout(mesh)),
    placed(jax.eval_shape(init), decoding_shardings(plain, mesh)),
    rollout.prompt_tokens,
    rollout.prompt_mask,
    jax.ShapeDtypeStruct(keys.shape, keys.dtype, sharding=batch_sharding(mesh)),
    Options(np.asarray([0], np.int32), top_k=sampling.top_k),
    group=sampling.group_size,
    max_tokens=sampling.max_completion_tokens,
    slots=sampling.slots,
    lanes=batch_shards(mesh),
  )


def _data(config: RunConfig, mesh: Mesh) -> tuple[Rollout, Feedback]:
  """Shapes of a rollout and its rewards."""
  sampling = config.sampling
  shapes = input_shapes(
    config.trained_algorithm,
    prompts_computed(config, mesh),
    sampling.group_size,
    sampling.max_prompt_tokens,
    sampling.max_completion_tokens,
    step_rewards=config.step_reward is not None,
  )
  return placed(shapes, jax.tree.map(lambda _: batch_sharding(mesh), shapes))
