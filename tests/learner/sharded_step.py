"""A program for `test_sharding.py`: one train step on the devices there are.

Prints, as JSON, the metrics of the step and a fingerprint of the parameters after it.
"""

import dataclasses
import json
import sys

import jax
import numpy as np
import optax

from pgax import algorithms
from pgax.data.prompts import CollatePrompts, PromptBatch
from pgax.distributed import MeshConfig, make_mesh
from pgax.distributed.partitioning import (
  batch_sharding,
  batch_shards,
  shardings_of,
  training_layout,
)
from pgax.evaluation.evaluate import evaluate
from pgax.learner import Learner, LearnerConfig
from pgax.learner.policy_step import make_policy_step
from pgax.learner.state import abstract_state, init_state
from pgax.learner.supervised_step import make_supervised_step
from pgax.models import Decoder, lora
from pgax.rewards import final_answer
from pgax.rewards.pool import InProcess
from pgax.training import enable_compilation_cache
from pgax.types import DemonstrationRows, Example
from tests import tiny


def main(fsdp: int, model: int, rank: int, vocab_size: int) -> None:
  enable_compilation_cache()
  mesh = make_mesh(MeshConfig(fsdp, model))
  config = dataclasses.replace(tiny.CONFIG, vocab_size=vocab_size)
  # Plain gradient descent, so that the parameters tell of the gradient itself; at a rate at
  # which their own rounding does not show.
  algorithm, adapters = algorithms.ppo(kl_coef=0.1, epochs=1), lora.LoraConfig(rank=rank)
  learner = Learner(
    Decoder(config, layout=training_layout(mesh)),
    algorithm,
    optax.sgd(30.0),
    lora=adapters,
    # Of the four completions of a device, in two lengths.
    config=LearnerConfig(microbatches=2, length_buckets=2),
    lanes=batch_shards(mesh),
  )
  shardings = shardings_of(abstract_state(learner, mesh))
  state = init_state(learner, mesh, seed=0)
  start = jax.device_get(state.params)
  step = make_policy_step(learner, shardings)
  place = batch_sharding(mesh)
  tokens, mask = tiny.prompts(lengths=[2 + i % 4 for i in range(16)])
  prompts = PromptBatch((), tokens, mask)
  policy = lora.merged(adapters, state.base, state.params)
  sampler = tiny.sampler(mesh, config, max_completion_tokens=6)
  drawn = sampler(policy, prompts, jax.random.key(0), temperature=1.0, group=2)
  # One slot for each part of the batch: no multiple of all devices where the model is cut.
  queued = tiny.sampler(mesh, config, max_completion_tokens=6, slots=mesh.size // model)
  queued = queued(policy, prompts, jax.random.key(0), temperature=1.0, group=2)
  problems = [Example(f"{i}+1=", str(i + 1)) for i in range(5)]  # no multiple of devices
  collate = CollatePrompts(sampler.tokenizer, max_prompt_tokens=5)
  # Two problems at a time, filled up to the devices: the draws depend on neither.
  evaluated = evaluate(
    sampler,
    policy,
    problems,
    collate,
    InProcess(final_answer),
    batch_size=4,
    key=jax.random.key(0),
    samples=2,
    temperature=1.0,
    keep=10,
  )
  rollout = jax.device_put(tiny.rollout(n=16, group=2), place)
  feedback = jax.device_put(tiny.feedback(n=16, group=2), place)
  state, reported = step(state, rollout, feedback)
  gradient = jax.tree.map(lambda a, b: a - b, start, jax.device_get(state.params))
  state, _ = step(state, rollout, feedback)
  assert step._cache_size() == 1  # the second step is the first one's program
  supervised = make_supervised_step(learner, microbatches=2, shardings=shardings)
  _, taught = supervised(init_state(learner, mesh, 0), jax.device_put(_rows(), place))
  embedding = lora.merged(adapters, state.base, state.params)["params"]["embedding"]
  result = {
    "devices": jax.device_count(),
    "shards": len({str(s.index) for s in embedding.addressable_shards}),
    "prompts_per_device": drawn.tokens.addressable_shards[0].data.shape[0],
    "drawn": np.asarray(drawn.tokens).tolist(),
    "queued": np.asarray(queued.tokens).tolist(),
    "evaluated": [sample.completion for sample in evaluated.samples],
    "metrics": {name: float(value) for name, value in reported.metrics.items()}
    | {f"supervised/{name}": value.item() for name, value in taught.items()},
    "gradient": [np.asarray(x).ravel()[:64].tolist() for x in jax.tree.leaves(gradient)],
  }
  print(json.dumps(result))


def _rows() -> DemonstrationRows:
  """Rows of two texts of ten tokens each, the second half of each learned."""
  tokens = np.random.default_rng(0).integers(3, 259, (16, 20), np.int32)
  positions = np.broadcast_to(np.arange(20, dtype=np.int32) % 10, tokens.shape)
  segments = np.broadcast_to(np.arange(20, dtype=np.int32) // 10 + 1, tokens.shape)
  return DemonstrationRows(tokens, positions >= 5, positions, segments)


if __name__ == "__main__":
  main(*map(int, sys.argv[1:]))
