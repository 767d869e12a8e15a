"""A program for `test_layouts.py`: compiles a train step and the sampler, and runs neither.

Prints, as JSON, the collectives of both.
"""

import dataclasses
import json
import sys

import jax
import jax.numpy as jnp
import numpy as np

from experiments.plan.arithmetic import Job, collective_bytes, total
from pgax import algorithms
from pgax.distributed import MeshConfig, make_mesh
from pgax.distributed.collectives import collectives
from pgax.distributed.partitioning import (
  batch_sharding,
  batch_shards,
  decoding_layout,
  decoding_shardings,
  placed,
)
from pgax.learner.compiled import compiled_steps
from pgax.learner.config import LearnerConfig, StepConfig
from pgax.models import Decoder
from pgax.models.parameters import cast_matrices, init_params
from pgax.sampling.decode import lower_sample
from pgax.sampling.options import Options
from pgax.training import SamplingConfig, enable_compilation_cache
from tests import tiny

# No two sizes are equal, and none is a multiple of another: a shape tells what it is of.
SIZES = {
  "vocab_size": 640,
  "embed_dim": 56,
  "num_heads": 4,
  "num_kv_heads": 2,
  "head_dim": 26,
  "mlp_dim": 176,
}
PROMPTS, GROUP, LENGTH = 16, 3, 18


def main(fsdp: int, model: int) -> None:
  enable_compilation_cache()
  mesh = make_mesh(MeshConfig(fsdp, model))
  config = dataclasses.replace(tiny.CONFIG, dtype="bfloat16", remat=True, **SIZES)
  feedback, rollout = (
    jax.tree.map(lambda x: _shape(x, batch_sharding(mesh)), tree)
    for tree in (
      tiny.feedback(n=PROMPTS, group=GROUP, length=LENGTH),
      tiny.rollout(n=PROMPTS, group=GROUP, length=LENGTH),
    )
  )
  steps = compiled_steps(
    StepConfig(config, algorithms.grpo(), learner=LearnerConfig(logit_chunk=9)), mesh
  )
  train = steps.policy_step.lower(steps.abstract, rollout, feedback)
  decode = _decoding(config, mesh, rollout)
  printed = {"train": _collectives(train), "decode": _collectives(decode)}
  print(json.dumps(printed | {"planned": _planned(config, mesh)}))


def _planned(config, mesh) -> float:
  """Bytes that an update sends by `experiments.plan`.

  CPUs compute bfloat16 products, and send their operands, in float32.
  """
  run = tiny.run_config(
    model=dataclasses.replace(config, dtype="float32"),
    algorithm=algorithms.grpo(),
    learner=LearnerConfig(logit_chunk=9),
    sampling=SamplingConfig(
      prompts_per_step=PROMPTS,
      group_size=GROUP,
      max_prompt_tokens=5,
      max_completion_tokens=LENGTH,
    ),
  )
  return total(collective_bytes(Job(run, mesh)))


def _decoding(config, mesh, rollout) -> jax.stages.Lowered:
  plain = Decoder(config)
  shapes = jax.eval_shape(
    lambda: cast_matrices(init_params(plain, jax.random.key(0)), "bfloat16")
  )
  return lower_sample(
    dataclasses.replace(plain, layout=decoding_layout(mesh)),
    placed(shapes, decoding_shardings(plain, mesh)),
    rollout.prompt_tokens,
    rollout.prompt_mask,
    _shape(jax.random.split(jax.random.key(0), PROMPTS), batch_sharding(mesh)),
    Options(np.asarray([2], np.int32)),
    group=GROUP,
    max_tokens=LENGTH,
    lanes=batch_shards(mesh),
  )


def _shape(x, sharding) -> jax.ShapeDtypeStruct:
  x = jnp.asarray(x)
  return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding)


def _collectives(lowered: jax.stages.Lowered) -> list[dict]:
  found = collectives(lowered.compile().as_text())
  return [dataclasses.asdict(x) | {"total": x.total} for x in found]


if __name__ == "__main__":
  main(*map(int, sys.argv[1:]))
