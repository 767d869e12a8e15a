"""The job of the ablations: sums of two digits, from one supervised warm start.

The model is tiny and a step has few completions, so that ten seeds of a setting take
seconds. All runs start from the same weights; a seed decides problems and samples.
"""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from pgax.algorithms import Algorithm, dr_grpo
from pgax.data import Task, byte_tokenizer
from pgax.distributed.mesh import make_mesh
from pgax.models import DecoderConfig
from pgax.models.decoder import Decoder
from pgax.rewards import final_answer
from pgax.rewards.math import MARKER
from pgax.tasks import addition
from pgax.training import (
  EvaluationConfig,
  OptimizerConfig,
  RunConfig,
  SamplingConfig,
  SupervisedConfig,
  train,
  with_settings,
)
from pgax.training.policy import load_params
from pgax.types import Example, PyTree

_MODEL = DecoderConfig(
  vocab_size=259,
  num_layers=2,
  embed_dim=32,
  num_heads=2,
  num_kv_heads=1,
  head_dim=16,
  mlp_dim=96,
)


@dataclasses.dataclass(frozen=True, eq=False)
class _SometimesDirect:
  """Problems of which some have the answer alone as their solution.

  Attributes:
    problems: problems with worked solutions.
    fraction: fraction of the problems whose solution is the answer alone.
  """

  problems: Sequence[Example]
  fraction: float

  def __len__(self) -> int:
    return len(self.problems)

  def __getitem__(self, position: int) -> Example:
    example = self.problems[position]
    if np.random.default_rng(position).random() >= self.fraction:
      return example
    return dataclasses.replace(example, solution=f"{MARKER} {example.ground_truth}")


def sums() -> Task:
  """Sums of two digits, by a demonstrator who forgets most carries."""
  return addition(digits=2, forget_carry=0.95)


def long_and_short_sums() -> Task:
  """The same sums, half of them with worked solutions and half with the answer alone."""
  task = sums()
  return dataclasses.replace(task, train=_SometimesDirect(task.train, 0.5))


def make_run(algorithm: Algorithm, task: Callable[[], Task] = sums) -> RunConfig:
  """Makes the run that the ablations change.

  Args:
    algorithm: algorithm of the run.
    task: makes the sums, of two digits.

  Returns:
    A `RunConfig` with the supervised stage of the warm start, named as the task.
  """
  return RunConfig(
    name=task.__name__,
    task=task(),
    reward=final_answer,
    algorithm=algorithm,
    model=_MODEL,
    steps=40,
    sampling=SamplingConfig(
      prompts_per_step=8, group_size=8, max_prompt_tokens=7, max_completion_tokens=26
    ),
    optimizer=OptimizerConfig(learning_rate=1e-4, warmup_steps=2),
    supervised=SupervisedConfig(
      steps=800,
      batch_size=64,
      optimizer=OptimizerConfig(learning_rate=3e-3, warmup_steps=20, decay_steps=800),
    ),
    evaluation=EvaluationConfig(every=5, problems=128),
  )


def without_warm_start(run: RunConfig) -> RunConfig:
  """The run that starts from weights that are given."""
  return with_settings(run, {"supervised.steps": 0})


def warm_start(run: RunConfig, workdir: Path) -> PyTree | None:
  """Trains the weights that all runs start from, or reads them if they exist.

  Args:
    run: run with a supervised stage.
    workdir: folder of all warm starts; that of the run has its name.

  Returns:
    Parameters; None after an interrupt.
  """
  # No algorithm acts in it, and the state of one, such as a baseline, would be saved.
  run = dataclasses.replace(run, steps=0, algorithm=dr_grpo())
  folder = workdir / run.name
  # Without a record of its configuration only this program can use the folder.
  if not train(run, byte_tokenizer(), folder).finished:
    return None
  return load_params(Decoder(run.model), make_mesh(), folder)
