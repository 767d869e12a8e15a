"""A program for `test_processes.py`: small runs, in one process or as one of several.

`python -m tests.distributed.jobs COORDINATOR COUNT INDEX FOLDER JOB[:STEPS] ...` trains
each job in its folder of FOLDER. A reward kills process `KILL_PROCESS` at its call
`KILL_CALL`.
"""

import dataclasses
import os
import sys
from pathlib import Path

import jax
import jax.numpy as jnp

from pgax import algorithms
from pgax.algorithms.config import UpdateConfig
from pgax.data import byte_tokenizer
from pgax.distributed import MeshConfig
from pgax.distributed.cluster import ending_together, initialize
from pgax.distributed.hosts import is_writer, on_writer, wait_for_all
from pgax.errors import UserError
from pgax.models import ScalarDecoder, hf
from pgax.models.heads import headless
from pgax.models.parameters import init_params
from pgax.training import (
  CriticConfig,
  EvaluationConfig,
  LoraConfig,
  RewardModelConfig,
  RunConfig,
  SamplingConfig,
  ScoringConfig,
  SupervisedConfig,
  enable_compilation_cache,
  train,
)
from tests import tiny
from tests.distributed.rewards import last, mostly_bad, parity


def _config(**changes) -> RunConfig:
  settings = {
    "reward": parity,
    "sampling": SamplingConfig(
      prompts_per_step=8, group_size=4, max_prompt_tokens=5, max_completion_tokens=16
    ),
    "steps": 3,
    "supervised": SupervisedConfig(steps=0),
  }
  return tiny.run_config(**(settings | changes))


_CORRECTED = UpdateConfig(importance_cap=2.0)


def _reward_model(folder: Path) -> str:
  """Writes a reward model whose head is not zero; returns its folder."""
  config = headless(dataclasses.replace(tiny.CONFIG, scale_embeddings=False))
  path = folder / "reward_model"

  def write() -> None:
    if not path.exists():
      params = init_params(ScalarDecoder(config), jax.random.key(3))["params"]
      params = {"params": dict(params) | {"head": jnp.linspace(-1, 1, config.embed_dim)}}
      hf.save_reward_model(path, config, params, byte_tokenizer())

  on_writer(write)
  return str(path)


JOBS = {
  "grpo": lambda folder: tiny.run_config(reward=parity, sampling=_config().sampling),
  "ppo": lambda folder: _config(
    algorithm=algorithms.ppo(epochs=1), critic=CriticConfig(), mesh=MeshConfig(fsdp=2)
  ),
  "dapo": lambda folder: _config(
    algorithm=algorithms.dapo(), scoring=ScoringConfig(pipeline_chunks=2)
  ),
  "lora": lambda folder: _config(
    lora=LoraConfig(rank=2), supervised=SupervisedConfig(steps=2, batch_size=8)
  ),
  "workers": lambda folder: _config(
    algorithm=algorithms.remax(),
    reward=mostly_bad,
    scoring=ScoringConfig(workers=1),
    evaluation=EvaluationConfig(
      problems=6, samples=4, temperature=1.0, extract_answer=str.strip
    ),
  ),
  "learned": lambda folder: _config(
    reward_model=RewardModelConfig(path=_reward_model(folder)), mesh=MeshConfig(model=2)
  ),
  "lag": lambda folder: _config(
    sampling=dataclasses.replace(_config().sampling, lag=1), policy_update=_CORRECTED
  ),
  # The axis `model` spans both processes, which share the rows.
  "steps": lambda folder: _config(
    algorithm=algorithms.grpo_process(),
    step_reward=last,
    model=dataclasses.replace(tiny.CONFIG, num_kv_heads=4),
    mesh=MeshConfig(model=4),
  ),
}


def main(coordinator: str, count: str, index: str, folder: str, *names: str) -> None:
  if int(index) != int(os.environ.get("KILL_PROCESS", index)):
    os.environ.pop("KILL_CALL", None)
  initialize(coordinator, int(count), int(index))
  enable_compilation_cache()
  for name, _, steps in (name.partition(":") for name in names):
    config = JOBS[name](Path(folder))
    config = dataclasses.replace(config, steps=int(steps or config.steps))
    record = {"job": name, "lora": {"rank": config.lora.rank}}
    result = train(
      config, byte_tokenizer(), Path(folder) / name, record, progress=False, loggers=()
    )
    if is_writer():
      print(name, result.progress, result.finished, flush=True)
  wait_for_all()


if __name__ == "__main__":
  try:
    with ending_together():
      main(*sys.argv[1:])
  except UserError as error:
    sys.exit(f"error: {error}")
