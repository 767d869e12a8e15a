"""A study: runs of many settings and seeds, with one program for each structure."""

import dataclasses
import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from transformers import PreTrainedTokenizerFast

from pgax.algorithms.numbers import partition_at
from pgax.errors import UserError
from pgax.study.alone import LoopRuns
from pgax.study.engine import Chunk, run_chunks, run_program
from pgax.study.policy import policy_program
from pgax.study.program import Numbers
from pgax.study.settings import (
  Grid,
  built,
  check_run,
  eval_every,
  free_numbers,
  make_settings,
  setting_name,
)
from pgax.training.batches import fit_task
from pgax.training.config import RunConfig
from pgax.types import PyTree

# Fields of a run that its results depend on. Problems may be too many to write down.
RECORDED = (
  "algorithm",
  "critic",
  "data",
  "evaluation",
  "learner",
  "lora",
  "model",
  "optimizer",
  "policy_update",
  "reward",
  "sampling",
  "supervised",
)


@dataclasses.dataclass(frozen=True)
class Study:
  """Metrics of all runs of a study.

  Attributes:
    settings: name of each setting.
    seeds: seeds of each setting.
    metrics: arrays by name, `[settings, seeds, steps]` of each metric of a step. Metrics of
      evaluations, `eval/NAME`, are `[settings, seeds, evaluations]`, the first one before
      any step; `time/run` is `[settings, seeds]`. A metric that a setting lacks is nan.
    eval_every: number of steps between evaluations.
  """

  settings: tuple[str, ...]
  seeds: tuple[int, ...]
  metrics: Mapping[str, np.ndarray]
  eval_every: int


def study(
  run: RunConfig,
  tokenizer: PreTrainedTokenizerFast,
  *,
  seeds: int | Sequence[int] = 10,
  grid: Grid | None = None,
  at_once: int | None = None,
  params: PyTree | None = None,
  workdir: Path | None = None,
  record: Mapping[str, Any] | None = None,
  progress: bool = True,
) -> Study:
  """Trains a policy for every seed and every setting of a grid, in one program.

  Args:
    run: configuration of the runs; its seed is ignored.
    tokenizer: tokenizer of the model.
    seeds: seeds, or the number of them, from 0.
    grid: values of numbers by their paths, such as `{"optimizer.learning_rate": [1e-4,
      3e-4], "algorithm.surrogate.clip_high": [0.2, 0.28]}`; all combinations are run. None
      runs the configuration as it is.
    at_once: number of runs that are computed at once, over all devices; it bounds memory.
      With 1, runs are trained by the loop and have its bits; more share a program. None is
      one for each CPU, and eight for each accelerator.
    params: parameters that all policies start from; None initializes them by the seed.
    workdir: folder where the results of finished runs are kept; the same call continues an
      interrupted study. A folder with results of another configuration, other numbers or
      seeds is rejected; the code of functions, task and `params` are not compared. None
      keeps nothing.
    record: further JSON values that identify the study.
    progress: whether to show a progress bar.

  Returns:
    A `Study`, whose settings are named as `learning_rate=0.0001 clip_high=0.2`.

  Raises:
    UserError: if the grid or the run can't be one program, before anything is compiled.
  """
  if grid is not None and not grid:
    raise UserError("the grid is empty; give a number and its values, or no grid")
  run = built(run)
  settings = make_settings(run, grid or {})
  runs = {setting_name(setting) or run.name: setting for setting in settings}
  return _study(
    {name: (run, setting) for name, setting in runs.items()},
    tokenizer,
    seeds,
    at_once,
    params,
    workdir,
    record,
    progress,
  )


def study_runs(
  runs: Mapping[str, RunConfig],
  tokenizer: PreTrainedTokenizerFast,
  *,
  seeds: int | Sequence[int] = 10,
  at_once: int | None = None,
  params: PyTree | None = None,
  workdir: Path | None = None,
  record: Mapping[str, Any] | None = None,
  progress: bool = True,
) -> Study:
  """Trains a policy for every seed and every run; runs that differ in numbers share one.

  Args:
    runs: configurations by their names; they have equally many steps.
    tokenizer: tokenizer of the models.
    seeds: see `study` for this and all other arguments.
    at_once: number of runs that are computed at once.
    params: parameters that all policies start from.
    workdir: folder where the results of finished runs are kept.
    record: JSON values that identify the study.
    progress: whether to show a progress bar.

  Returns:
    A `Study`.

  Raises:
    UserError: if a run can't be part of a program, before anything is compiled.
  """
  if not runs:
    raise UserError("there are no runs to study; give at least one")
  runs = {name: built(run) for name, run in runs.items()}
  numbered = {name: (run, free_numbers(run)) for name, run in runs.items()}
  return _study(numbered, tokenizer, seeds, at_once, params, workdir, record, progress)


def _study(
  settings: Mapping[str, tuple[RunConfig, Mapping[str, float]]],
  tokenizer: PreTrainedTokenizerFast,
  seeds: int | Sequence[int],
  at_once: int | None,
  params: PyTree | None,
  workdir: Path | None,
  record: Mapping[str, Any] | None,
  progress: bool,
) -> Study:
  chosen = tuple(range(seeds)) if isinstance(seeds, int) else tuple(seeds)
  if not chosen or len({*chosen}) < len(chosen) or min(chosen) < 0:
    raise UserError(f"seeds is {seeds}; give a number of seeds, or different ones from 0")
  if at_once is None:  # a run keeps a CPU busy; of accelerators, eight are a guess
    at_once = len(jax.devices()) * (1 if jax.default_backend() == "cpu" else 8)
  if at_once < 1:
    raise UserError(f"at_once is {at_once}; it must be at least 1")
  groups = _by_structure(settings)
  for names in groups:
    _check_start(settings[names[0]][0], at_once, params)
    check_run(settings[names[0]][0], tokenizer, at_once)
  every = _common_schedule(run for run, _ in settings.values())
  results = {}
  for number, names in enumerate(groups):
    run = fit_task(settings[names[0]][0], tokenizer)[0]
    numbers = [settings[x][1] for x in names]
    identity = {"names": list(names), "seeds": list(chosen), **(record or {})}
    options = {
      "folder": None if workdir is None else workdir / f"program_{number}",
      "record": structure_record(*settings[names[0]]) | identity,
      "name": names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more",
      "progress": progress,
    }
    if at_once == 1:
      compute = functools.partial(_run_alone, LoopRuns(run, tokenizer, params), numbers)
      metrics = run_chunks(compute, numbers, chosen, run.steps, at_once, **options)
    else:
      program = policy_program(run, tokenizer, params)
      metrics = run_program(program, numbers, chosen, at_once=at_once, **options)
    for index, x in enumerate(names):
      results[x] = {key: values[index] for key, values in metrics.items()}
  return Study(tuple(settings), chosen, _stacked(settings, results), every)


def _check_start(run: RunConfig, at_once: int, params: PyTree | None) -> None:
  if at_once > 1 and params is None and (run.init_from_run or run.model_path):
    raise UserError(
      f"init_from_run is {run.init_from_run!r} and model_path is {run.model_path!r}; a "
      "program of several runs starts from the argument params, or from fresh parameters"
    )


def _common_schedule(runs: Iterable[RunConfig]) -> int:
  """Returns after how many steps all runs are evaluated."""
  schedules = {(run.steps, eval_every(run)) for run in runs}
  if len(schedules) > 1:
    raise UserError(
      f"steps and evaluation.every of the runs are {sorted(schedules)}; in a study they "
      "must be the same for all"
    )
  (_, every) = schedules.pop()
  return every


def _run_alone(
  train: LoopRuns,
  numbers: Sequence[Numbers],
  chunk: Chunk,
  report: Callable[[int], None],
) -> dict[str, np.ndarray]:
  ((setting, seed),) = chunk.runs
  return train(numbers[setting], seed, report)


def structure_record(run: RunConfig, numbers: Mapping[str, float]) -> dict[str, str]:
  """Describes what the results of a run depend on, besides its numbers and problems.

  Args:
    run: configuration of the run.
    numbers: its numbers, by their paths, which are left out.

  Returns:
    A text for each of the `RECORDED` fields.
  """
  structure = partition_at(run, numbers).structure
  return {field: _description(getattr(structure, field)) for field in RECORDED}


def _description(value: object) -> str:
  """The repr of a part of a run, and what that of a closure or an object leaves out."""
  inside = [cell.cell_contents for cell in getattr(value, "__closure__", None) or ()]
  if type(value).__repr__ is object.__repr__:
    inside.append(vars(value))
  # Addresses of functions differ from process to process.
  return re.sub(r" at 0x[0-9a-f]+", "", " ".join(map(repr, [value, *inside])))


def _by_structure(
  settings: Mapping[str, tuple[RunConfig, Mapping[str, float]]],
) -> list[list[str]]:
  """Groups the names of settings that differ in nothing but their numbers."""
  groups: list[tuple[RunConfig, list[str]]] = []
  for name, (run, numbers) in settings.items():
    structure = partition_at(run, numbers).structure
    for other, names in groups:
      if other == structure:
        names.append(name)
        break
    else:
      groups.append((structure, [name]))
  return [names for _, names in groups]


def _stacked(
  settings: Mapping[str, Any], results: Mapping[str, Mapping[str, np.ndarray]]
) -> dict[str, np.ndarray]:
  """Arrays over all settings; nan where a setting lacks a metric."""
  shapes = {key: x.shape for metrics in results.values() for key, x in metrics.items()}
  return {
    key: np.stack([results[x].get(key, np.full(shape, np.nan)) for x in settings])
    for key, shape in shapes.items()
  }
