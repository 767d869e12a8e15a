"""The latest checkpoint of a run, with the problems to try it on."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pgax.rollout import Sampler, make_sampler
from pgax.runs import read_config
from pgax.settings import setting_at, with_settings
from pgax.training import Progress, RunConfig, build, saved_run, to_json
from pgax.training.batches import fit_task
from pgax.training.policy import Policy, eos_ids, load_policy


@dataclasses.dataclass(frozen=True)
class Checkpoint:
  """A trained policy, and the problems to try it on.

  Attributes:
    policy: policy of the latest checkpoint.
    progress: its stage and step, in words.
    run: configuration with the problems, their reward and the sampling settings.
    sampler: samples completions with the settings of `run`.
    counts: numbers of problems; see `fit_task`.
    config: the config that `run` was made of, as JSON values.
  """

  policy: Policy
  progress: str
  run: RunConfig
  sampler: Sampler
  counts: Mapping[str, int]
  config: Mapping[str, Any]


def load_checkpoint(workdir: Path, config: RunConfig | None) -> Checkpoint:
  """Reads a run's latest checkpoint.

  Args:
    workdir: folder of the run.
    config: config of problems, reward and sampling; None for those of the run itself.
      Prompts are rendered as in the run, unless this config has a chat template.

  Returns:
    A `Checkpoint`.

  Raises:
    UserError: if the folder holds no run, or a configuration can't be used.
  """
  trained = saved_run(workdir, with_task=config is None)
  run = trained if config is None else build(config)
  if not run.data.chat_template:
    names = ("data.chat_template", "data.system_prompt")
    run = with_settings(run, {name: setting_at(trained, name) for name in names})
  policy = load_policy(trained, workdir)
  run, counts = fit_task(run, policy.tokenizer)  # leaves out the problems that training did
  ids = eos_ids(trained.model_path, policy.tokenizer)
  return Checkpoint(
    policy=policy,
    progress=in_words(policy.progress, trained),
    run=run,
    sampler=make_sampler(run.sampling, policy.model, policy.tokenizer, policy.mesh, ids),
    counts=counts,
    config=read_config(workdir) if config is None else to_json(config),
  )


def in_words(progress: Progress, run: RunConfig) -> str:
  """Describes how far a run is.

  Args:
    progress: stage and step.
    run: configuration of the run.

  Returns:
    A few words, such as `step 12 of 40`.
  """
  if progress.is_supervised:
    return f"supervised step {progress.step} of {run.supervised.steps}"
  if not run.steps and run.supervised.steps:  # the run ends with its supervised stage
    return f"supervised step {run.supervised.steps} of {run.supervised.steps}"
  return f"step {progress.step} of {run.steps}" if run.steps else "step 0"
