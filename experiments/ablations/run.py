"""Selects ablations and runs them."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from experiments.ablations.job import warm_start, without_warm_start
from experiments.ablations.report import write_ablation
from experiments.ablations.runs import ABLATIONS, Ablation
from pgax.data import byte_tokenizer
from pgax.errors import UserError
from pgax.study import check_run, study_runs
from pgax.training import RunConfig


def chosen(names: Sequence[str]) -> list[str]:
  """Returns the names of ablations.

  Args:
    names: names of ablations, or `all`.

  Raises:
    UserError: if there is no name, or one is unknown.
  """
  if not names:
    raise UserError(f"--name is empty; allowed are all, {', '.join(ABLATIONS)}")
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
  """Runs an ablation from the warm start of its task, and writes its results.

  Args:
    ablation: the ablation, with the form of its report.
    runs: its runs, which have the same supervised stage.
    workdir: folder of all ablations, which share warm starts.
    name: name of the ablation, and of its folder.
    seeds: number of seeds.
    at_once: number of runs that are computed at once; see `study.study_runs`.

  Returns:
    The table; None after an interrupt.
  """
  started = {name: without_warm_start(run) for name, run in runs.items()}
  # What a flag can break is the same in all; supervised training takes minutes.
  check_run(next(iter(started.values())), byte_tokenizer())
  params = warm_start(next(iter(runs.values())), workdir / "warm_start")
  if params is None:
    return None
  study = study_runs(
    started,
    byte_tokenizer(),
    seeds=seeds,
    at_once=at_once,
    params=params,
    workdir=workdir / name,
  )
  return write_ablation(study, ablation, workdir / name)
