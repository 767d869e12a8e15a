"""Accuracy of a checkpoint: `python -m experiments.evaluate --workdir=DIR`.

The problems are those of the run itself, or, with `--config=FILE`, those of another
config, which then also gives the reward and the limits on length.
"""

import json
import math
from pathlib import Path

from absl import flags

from experiments import program
from experiments.configuration import freeze, saved_run
from pgax.training import UserError
from pgax.training.evaluation import evaluate
from pgax.training.policy import load_policy
from pgax.training.problems import fit_problems, prompt_collator
from pgax.training.rollout import open_scorer

_CONFIG = program.define_config(None)
_WORKDIR = flags.DEFINE_string("workdir", None, "Folder of the run.", required=True)
_SPLIT = flags.DEFINE_enum("split", "held_out", ["held_out", "train"], "Which problems.")
_PROBLEMS = flags.DEFINE_integer(
  "problems", 1000, "How many problems, from the first on; 0 for all.", lower_bound=0
)
_BATCH = flags.DEFINE_integer(
  "batch_size", 128, "Problems decoded at a time.", lower_bound=1
)


def main() -> int:
  """Evaluates, and prints a line to read and a line of JSON."""
  workdir = Path(_WORKDIR.value)
  own = _CONFIG.value is None
  trained = saved_run(workdir, with_task=own)
  run = trained if own else freeze(_CONFIG.value)
  policy = load_policy(trained, workdir)
  run, counts = fit_problems(run, policy.tokenizer)  # as training leaves problems out
  problems = run.task.train if _SPLIT.value == "train" else run.task.held_out
  count = min(_PROBLEMS.value or len(problems), len(problems))
  try:
    with open_scorer(run.reward, run.scoring) as scorer:
      found = evaluate(
        policy.sampler,
        policy.params,
        [problems[i] for i in range(count)],
        prompt_collator(run, policy.tokenizer),
        scorer,
        _BATCH.value,
      )
  except ValueError as error:  # such as a prompt over the limit
    raise UserError(str(error)) from error
  print(
    f"{workdir}, step {policy.step}: {found.accuracy:.1%} of {found.problems} problems of "
    f"{run.name}/{_SPLIT.value}, {found.truncated:.1%} cut at the limit, "
    f"{found.unscorable:.1%} not scorable"
  )
  measured = {
    "accuracy": found.accuracy,
    "unscorable": found.unscorable,
    "truncated": found.truncated,
    "problems": found.problems,
    "step": policy.step,
  }
  told = found.parts | measured | counts
  finite = {name: x if math.isfinite(x) else None for name, x in told.items()}
  print(json.dumps(finite, allow_nan=False))
  return 0


if __name__ == "__main__":
  program.run(main)
