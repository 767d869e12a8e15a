"""Runs many seeds and settings of a config: `python -m experiments.study --workdir=DIR`.

All runs that differ in numbers alone are one compiled program. `--grid=KEY=VALUE,VALUE`
gives the values of a setting of the config, as in `--grid=algorithm.clip_high=0.2,0.28`;
several of them are combined. Settings that are no numbers, such as `sampling.group_size`,
compile a program for each value. The same command continues an interrupted study.

Writes a table with means and 95 % intervals (bootstrap over seeds), a picture with bands,
and all metrics.
"""

import copy
import dataclasses
import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from absl import flags
from ml_collections import ConfigDict

from experiments import program
from experiments.config_files import CONFIGS
from experiments.configuration import freeze
from experiments.saved_config import to_json
from experiments.study_report import write_study
from pgax.distributed.mesh import make_mesh
from pgax.distributed.partitioning import param_shardings
from pgax.errors import UserError
from pgax.models import hf
from pgax.models.decoder import Decoder
from pgax.study import study_runs
from pgax.training import RunConfig
from pgax.training.policy import load_params
from pgax.types import PyTree

_CONFIG = program.define_config(str(CONFIGS / "grpo.py"))
_WORKDIR = flags.DEFINE_string("workdir", None, "Folder of the study.", required=True)
_SEEDS = flags.DEFINE_integer("seeds", 10, "Number of seeds.", lower_bound=1)
_GRID = flags.DEFINE_multi_string("grid", [], "Values of a setting: KEY=VALUE,VALUE.")
_AT_ONCE = flags.DEFINE_integer(
  "at_once", 8, "Number of runs that are computed at once.", lower_bound=1
)
_METRIC = flags.DEFINE_string("metric", "eval/accuracy", "Metric of table and picture.")
_GOAL = flags.DEFINE_float("goal", 0.8, "Value of the metric to count steps to.")


def main() -> int:
  """Runs the study, and prints its table."""
  config, workdir = _CONFIG.value, Path(_WORKDIR.value)
  grid = dict(parse_axis(config, text) for text in _GRID.value)
  runs = make_runs(config, grid)
  record = {"config": json.loads(json.dumps(to_json(config)))}
  first = next(iter(runs.values()))
  study = study_runs(
    runs,
    program.tokenizer(first.model_path),
    seeds=_SEEDS.value,
    at_once=_AT_ONCE.value,
    params=start_params(first),
    workdir=workdir,
    record=record,
  )
  if _METRIC.value not in study.metrics:
    raise UserError(
      f"--metric is {_METRIC.value!r}; the metrics are {', '.join(sorted(study.metrics))}"
    )
  text = write_study(study, workdir, first.name, _METRIC.value, _GOAL.value)
  print(f"\n{text}\ntable, picture and metrics: {workdir}")
  return 0


def parse_axis(config: ConfigDict, text: str) -> tuple[str, list[Any]]:
  """Parses a value of `--grid`.

  Args:
    config: config that has the setting.
    text: such as `algorithm.clip_high=0.2,0.28`.

  Returns:
    The key and its values, of the type that the config has.

  Raises:
    UserError: if there is no such setting, or a value is not of its type.
  """
  key, _, values = text.removeprefix("config.").partition("=")
  part: Any = config
  for name in key.split("."):
    if not isinstance(part, ConfigDict) or name not in part:
      allowed = ", ".join(sorted(part)) if isinstance(part, ConfigDict) else "no keys"
      raise UserError(f"--grid has {key!r}, which has no {name!r}; allowed are {allowed}")
    part = part[name]
  if not values:
    raise UserError(f"--grid={text} has no values; give KEY=VALUE,VALUE")
  if isinstance(part, ConfigDict) or callable(part) or part is None:
    raise UserError(f"--grid has {key!r}, which is no number, word or truth value")
  return key, [_parse(key, value, type(part)) for value in values.split(",")]


def _parse(key: str, text: str, kind: type) -> Any:
  if kind is bool and text in ("True", "False", "true", "false"):
    return text in ("True", "true")
  try:
    return kind(text) if kind in (int, float, str) else kind(json.loads(text))
  except ValueError:
    raise UserError(
      f"--grid has {key}={text}; it must be of type {kind.__name__}"
    ) from None


def make_runs(
  config: ConfigDict, grid: Mapping[str, Sequence[Any]]
) -> dict[str, RunConfig]:
  """Makes the runs of all combinations of a grid.

  Args:
    config: config of the runs.
    grid: values of settings, by their keys in the config.

  Returns:
    Configurations by their names, such as `clip_high=0.2`. Equal tasks are one task.
  """
  base, runs = freeze(config), {}
  for values in itertools.product(*grid.values()):
    changed, names = copy.deepcopy(config), []
    for key, value in zip(grid, values, strict=True):
      *path, last = key.split(".")
      part = changed
      for name in path:
        part = part[name]
      part[last] = value
      names.append(f"{last}={value:g}" if isinstance(value, float) else f"{last}={value}")
    run = freeze(changed)
    if not any(key.startswith("task.") for key in grid):
      run = dataclasses.replace(run, task=base.task)
    runs[" ".join(names) or run.name] = run
  return runs


def start_params(run: RunConfig) -> PyTree | None:
  """Loads the parameters that a run starts from; None if they are fresh."""
  mesh, model = make_mesh(), Decoder(run.model)
  if run.init_from_run:
    return load_params(model, mesh, Path(run.init_from_run))
  if run.model_path:
    return hf.load_params(Path(run.model_path), run.model, param_shardings(model, mesh))
  return None


if __name__ == "__main__":
  program.run(main)
