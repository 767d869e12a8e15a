"""Measures solve rates: `python -m experiments.solve_rates --workdir=DIR --output=FILE`.

Samples completions of every training problem with the policy of a run, and writes how often
each was right, for `data.filtered` to leave out problems that are always or never solved. A
run with `--config.steps=0` has the policy that reinforcement learning starts from.
`--config=FILE` takes the problems of another config (see `experiments.evaluate`). The same
command continues an interrupted measurement.
"""

from pathlib import Path

import numpy as np
from absl import flags
from tqdm import tqdm

from experiments import program
from experiments.checkpoint import load_checkpoint
from experiments.config_flag import ConfigFlag
from pgax.distributed.hosts import is_writer, shared_errors, wait_for_all
from pgax.errors import UserError
from pgax.evaluation.solve_rates import measure
from pgax.rollout import open_reward_runner
from pgax.training.batches import prompt_collator

_CONFIG = ConfigFlag(None)
_WORKDIR = flags.DEFINE_string("workdir", None, "Folder of the run.", required=True)
_OUTPUT = flags.DEFINE_string("output", None, "File to write.", required=True)
_SAMPLES = flags.DEFINE_integer("samples", 8, "Completions per problem.", lower_bound=1)
_PROBLEMS = flags.DEFINE_integer(
  "problems", 0, "Number of problems, the first ones; 0 for all.", lower_bound=0
)
_BATCH = flags.DEFINE_integer(
  "batch_size", 32, "Number of problems at a time.", lower_bound=1
)
_SEED = flags.DEFINE_integer("seed", 0, "Random seed.", lower_bound=0)


def main() -> int:
  """Measures, and prints how many problems are never, sometimes and always solved."""
  workdir = Path(_WORKDIR.value)
  with shared_errors():
    output = program.output_file(_OUTPUT.value)
    checkpoint = load_checkpoint(workdir, _CONFIG.value)
  wait_for_all()
  run, policy = checkpoint.run, checkpoint.policy
  count = min(_PROBLEMS.value or len(run.task.train), len(run.task.train))
  problems = [run.task.train[i] for i in range(count)]
  try:
    with (
      open_reward_runner(run.reward, run.scoring) as runner,
      tqdm(total=count, desc="problems", disable=not is_writer()) as bar,
    ):
      rates = measure(
        checkpoint.sampler,
        policy.params,
        problems,
        prompt_collator(run.data, policy.tokenizer, run.sampling.max_prompt_tokens),
        runner,
        output,
        samples=_SAMPLES.value,
        temperature=run.sampling.temperature,
        batch_size=_BATCH.value,
        seed=_SEED.value,
        record={
          "policy": str(workdir.resolve()),
          "stage": policy.progress.stage,
          "step": policy.progress.step,
          **{name: checkpoint.config[name] for name in ("reward", "sampling", "data")},
        },
        progress=lambda done: bar.update(done - bar.n),
      )
  except ValueError as error:  # such as a prompt over the limit
    raise UserError(str(error)) from error
  known = np.asarray([x for x in rates if x is not None])
  print(
    f"{workdir}, {checkpoint.progress}: of {len(rates)} problems {np.sum(known == 0)} were "
    f"never solved, {np.sum((known > 0) & (known < 1))} sometimes, {np.sum(known == 1)} "
    f"always, and {len(rates) - len(known)} could not be scored"
  )
  print(f"solve rates: {output}")
  return 0


if __name__ == "__main__":
  program.run(main, processes=True, config=_CONFIG)
