"""The last checkpoint of a run, with the problems that it is tried on."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from experiments.configuration import freeze, saved_run
from experiments.saved_config import to_json
from pgax.training import RunConfig
from pgax.training.policy import Policy, end_ids, load_policy
from pgax.training.problems import fit_problems
from pgax.training.sampler import Sampler, make_sampler
from pgax.training.workdir import read_config


class Checkpoint(NamedTuple):
  """A trained policy, and what it is tried on.

  Attributes:
    policy: the last one of the run.
    place: its step, for people.
    run: has the problems, their reward and the settings of sampling.
    sampler: draws completions as `run` does.
    counts: what is known of the problems; see `fit_problems`.
    config: what `run` was made of, as JSON values.
  """

  policy: Policy
  place: str
  run: RunConfig
  sampler: Sampler
  counts: Mapping[str, int]
  config: Mapping[str, Any]


def load_checkpoint(workdir: Path, config: ConfigDict | None) -> Checkpoint:
  """Reads a run's last checkpoint.

  Args:
    workdir: folder of the run.
    config: of problems, reward and sampling; None for those of the run itself. Prompts
      are rendered as in the run, unless this config has a chat template of its own.

  Returns:
    A `Checkpoint`.

  Raises:
    UserError: if the folder holds no run, or a configuration can't be used.
  """
  trained = saved_run(workdir, with_task=config is None)
  run = trained if config is None else freeze(config)
  if not run.data.chat_template:
    chat = trained.data.chat_template, trained.data.system_prompt
    data = dataclasses.replace(run.data, chat_template=chat[0], system_prompt=chat[1])
    run = dataclasses.replace(run, data=data)
  policy = load_policy(trained, workdir)
  run, counts = fit_problems(run, policy.tokenizer)  # as training leaves problems out
  ends = end_ids(trained, policy.tokenizer)
  return Checkpoint(
    policy=policy,
    place=place(trained, policy.step),
    run=run,
    sampler=make_sampler(run.sampling, policy.model, policy.tokenizer, policy.mesh, ends),
    counts=counts,
    config=read_config(workdir) if config is None else to_json(config),
  )


def place(run: RunConfig, step: int) -> str:
  """The step that a run is at, of the stage that it is in.

  Args:
    run: the run.
    step: number of reinforcement steps done; below 0 within the supervised stage.

  Returns:
    A few words.
  """
  first = run.supervised.steps
  if step < 0 or not (step or run.steps):
    return f"supervised step {first + step} of {first}" if first else "step 0"
  return f"step {step} of {run.steps}"
