"""Settings that had other names before: errors that name the new ones."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from pgax.errors import UserError
from pgax.runs.workdir import flatten, read_config

# Dotted name of a setting before -> its name now.
RENAMED_RUN = {
  "sampling.prompts": "sampling.prompts_per_step",
  "sampling.group": "sampling.group_size",
  "sampling.max_tokens": "sampling.max_completion_tokens",
  "sampling.stop": "sampling.stop_strings",
  "sampling.forbidden": "sampling.banned_tokens",
  "scoring.deadline": "scoring.timeout_seconds",
  "scoring.parts": "scoring.pipeline_chunks",
  "reward_model.cut_reward": "reward_model.truncation_reward",
  "policy_from": "init_from_run",
  "answer": "evaluation.extract_answer",
  "eval_problems": "evaluation.problems",
  "eval_samples": "evaluation.samples",
  "eval_temperature": "evaluation.temperature",
  "checkpoint_every": "checkpoints.every",
  "keep_checkpoints": "checkpoints.keep",
  "microbatches": "learner.microbatches",
  "logit_chunk": "learner.logit_chunk",
  "eval_every": "evaluation.every",
  "model.post_norms": "model.norm_placement",
}
RENAMED_PREFERENCES = {  # `eval_every` stays
  "max_tokens": "max_completion_tokens",
  "checkpoint_every": "checkpoints.every",
  "keep_checkpoints": "checkpoints.keep",
}


def check_names(names: Iterable[str], renamed: Mapping[str, str]) -> None:
  """Rejects settings that have another name now.

  Args:
    names: dotted names of settings.
    renamed: names before and now.

  Raises:
    UserError: with the first such name and its new one.
  """
  for name in names:
    if name in renamed:
      raise UserError(f"config has no key {name!r} any more: it is {renamed[name]!r} now")


def check_saved(workdir: Path, renamed: Mapping[str, str]) -> None:
  """Rejects the folder of a run whose settings had other names.

  Args:
    workdir: folder of a run; it need not exist.
    renamed: names before and now.

  Raises:
    UserError: with the first such name and its new one.
  """
  for name in flatten(read_config(workdir) or {}):
    if name in renamed:
      raise UserError(
        f"the run in {workdir} is from an earlier version of pgax, whose runs can't be "
        f"continued or evaluated: its setting {name!r} is {renamed[name]!r} now. Train it "
        "again in another workdir"
      )
