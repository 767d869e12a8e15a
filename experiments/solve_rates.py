"""Solve rates: `python -m experiments.solve_rates --workdir=DIR --output=FILE`.

Samples completions of every training problem by the policy of a run, and writes how often
each was right. `data.filtered` then leaves out what is always or never solved. A run of
`--config.steps=0` has the policy that a run starts from. The problems are those of the run
itself, or, with `--config=FILE`, those of another config, which then also gives the reward
and the settings of sampling (see `evaluate`). The same command goes on where an interrupted
one stopped.
"""

from pathlib import Path

import numpy as np
from absl import flags
from tqdm import tqdm

from experiments import program
from experiments.checkpoint import load_checkpoint
from pgax.training import UserError
from pgax.training.problems import prompt_collator
from pgax.training.rollout import open_scorer
from pgax.training.solve_rates import measure

_CONFIG = program.define_config(None)
_WORKDIR = flags.DEFINE_string("workdir", None, "Folder of the run.", required=True)
_OUTPUT = flags.DEFINE_string("output", None, "File to write.", required=True)
_SAMPLES = flags.DEFINE_integer("samples", 8, "Completions of each problem.", lower_bound=1)
_PROBLEMS = flags.DEFINE_integer(
  "problems", 0, "How many problems, from the first on; 0 for all.", lower_bound=0
)
_BATCH = flags.DEFINE_integer("batch_size", 32, "Problems at a time.", lower_bound=1)
_SEED = flags.DEFINE_integer("seed", 0, "Of the random draws.", lower_bound=0)


def main() -> int:
  """Measures, and tells how many problems are never, sometimes and always solved."""
  workdir, output = Path(_WORKDIR.value), program.output_file(_OUTPUT.value)
  found = load_checkpoint(workdir, _CONFIG.value)
  run, policy = found.run, found.policy
  count = min(_PROBLEMS.value or len(run.task.train), len(run.task.train))
  problems = [run.task.train[i] for i in range(count)]
  try:
    with (
      open_scorer(run.reward, run.scoring) as scorer,
      tqdm(total=count, desc="problems") as bar,
    ):
      rates = measure(
        found.sampler,
        policy.params,
        problems,
        prompt_collator(run, policy.tokenizer),
        scorer,
        output,
        samples=_SAMPLES.value,
        temperature=run.sampling.temperature,
        batch_size=_BATCH.value,
        seed=_SEED.value,
        record={
          "policy": str(workdir.resolve()),
          "step": policy.step,
          **{name: found.config[name] for name in ("reward", "sampling", "data")},
        },
        progress=lambda done: bar.update(done - bar.n),
      )
  except ValueError as error:  # such as a prompt over the limit
    raise UserError(str(error)) from error
  told = np.asarray([x for x in rates if x is not None])
  print(
    f"{workdir}, {found.place}: of {len(rates)} problems {np.sum(told == 0)} were "
    f"never solved, {np.sum((told > 0) & (told < 1))} sometimes, {np.sum(told == 1)} "
    f"always, and {len(rates) - len(told)} could not be scored"
  )
  print(f"solve rates: {output}")
  return 0


if __name__ == "__main__":
  program.run(main)
