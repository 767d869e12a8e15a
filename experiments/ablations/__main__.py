"""Runs ablations: `python -m experiments.ablations --name=baseline --workdir=DIR`.

Each changes one choice of an algorithm in a small job and runs all options with the same
seeds and from the same weights: baseline, length, std, off_policy, learning_rate, kl and
group_size. `--name` takes several, or `all`. The same command continues what was
interrupted.

Writes `table.md` with means and 95 % intervals (bootstrap over seeds), `curves.png` with
bands, and all metrics, to a folder for each.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import jax
from absl import flags

from experiments import program
from experiments.ablations.job import warm_start, without_warm_start
from experiments.ablations.report import write_ablation
from experiments.ablations.runs import ABLATIONS, Ablation
from pgax.data import byte_tokenizer
from pgax.errors import UserError
from pgax.study import study_runs
from pgax.training import RunConfig

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


def chosen(names: Sequence[str]) -> list[str]:
  """Returns the names of ablations.

  Args:
    names: names of ablations, or `all`.

  Raises:
    UserError: if a name is unknown.
  """
  for name in names:
    if name not in (*ABLATIONS, "all"):
      raise UserError(f"--name has {name!r}; allowed are all, {', '.join(ABLATIONS)}")
  return list(ABLATIONS) if "all" in names else list(dict.fromkeys(names))


def shortened(runs: dict[str, RunConfig], steps: int | None) -> dict[str, RunConfig]:
  """Returns the runs with another number of steps, if one is given."""
  if steps is None:
    return runs
  return {name: dataclasses.replace(run, steps=steps) for name, run in runs.items()}


def run_ablation(
  ablation: Ablation,
  runs: dict[str, RunConfig],
  workdir: Path,
  name: str,
  seeds: int = 10,
  at_once: int | None = None,
) -> str | None:
  """Runs an ablation from the warm start of its task, and writes what it found.

  Args:
    ablation: how it is reported.
    runs: its runs, which have the same supervised stage.
    workdir: folder of all ablations, which share warm starts.
    name: name of the ablation, and of its folder.
    seeds: number of seeds.
    at_once: number of runs that are computed at once; see `study.study_runs`.

  Returns:
    The table; None after an interrupt.
  """
  params = warm_start(next(iter(runs.values())), workdir / "warm_start")
  if params is None:
    return None
  study = study_runs(
    {name: without_warm_start(run) for name, run in runs.items()},
    byte_tokenizer(),
    seeds=seeds,
    at_once=at_once,
    params=params,
    workdir=workdir / name,
  )
  return write_ablation(study, ablation, workdir / name)


if __name__ == "__main__":
  program.run(main)
