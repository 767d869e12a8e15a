"""Runs ablations: `python -m experiments.ablations --name=baseline --workdir=DIR`.

Each changes one choice of an algorithm in a small job and runs all options with the same
seeds and from the same weights: baseline, length, std, off_policy, learning_rate, kl and
group_size. `--name` takes several, or `all`. The same command continues what was
interrupted.

Writes `table.md` with means and 95 % intervals (bootstrap over seeds), `curves.png` with
bands, and all metrics, to a folder for each.
"""

from pathlib import Path

import jax
from absl import flags

from experiments import program
from experiments.ablations.run import chosen, run_ablation, shortened
from experiments.ablations.runs import ABLATIONS

_NAME = flags.DEFINE_list("name", ["all"], "Names of ablations, or all.")
_WORKDIR = flags.DEFINE_string("workdir", None, "Folder of the results.", required=True)
_SEEDS = flags.DEFINE_integer("seeds", 10, "Number of seeds.", lower_bound=1)
_STEPS = flags.DEFINE_integer(
  "steps", None, "Number of steps of a run; the job's by default.", lower_bound=1
)
_AT_ONCE = flags.DEFINE_integer(
  "at_once", None, "Number of runs that are computed at once.", lower_bound=1
)


def main() -> int:
  """Runs the ablations, and prints their tables."""
  workdir = Path(_WORKDIR.value).resolve()
  for name in chosen(_NAME.value):
    runs = shortened(ABLATIONS[name].runs(), _STEPS.value)
    text = run_ablation(ABLATIONS[name], runs, workdir, name, _SEEDS.value, _AT_ONCE.value)
    if text is None:
      print("\nInterrupted; give the same command again to continue.")
      return 130
    print(f"\n{ABLATIONS[name].title}\n\n{text}\nresults: {workdir / name}")
    jax.clear_caches()  # programs of other ablations are not needed again
  return 0


if __name__ == "__main__":
  program.run(main)
