"""The runs of a study by the command line: values of settings, and all combinations."""

import copy
import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from experiments.configuration import freeze
from pgax.distributed.mesh import make_mesh
from pgax.distributed.partitioning import param_shardings
from pgax.errors import UserError
from pgax.models import hf
from pgax.models.decoder import Decoder
from pgax.study import setting_name
from pgax.training import RunConfig
from pgax.training.policy import load_params
from pgax.types import PyTree

_TRUTH = {"True": True, "true": True, "False": False, "false": False}
_START = "all settings start from the same parameters, so run a study for each"
# Settings that all runs of a study share.
_SHARED = {
  "seed": "every setting has the seeds of --seeds",
  "init_from_run": _START,
  "model.path": _START,
}


def parse_axis(config: ConfigDict, text: str) -> tuple[str, list[Any]]:
  """Parses a value of `--grid`.

  Args:
    config: config that has the setting.
    text: such as `algorithm.clip_high=0.2,0.28`.

  Returns:
    The key and its values, of the type that the config has.

  Raises:
    UserError: if there is no such setting, all runs share it, a value is not of its type,
      or there twice.
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
  if type(part) not in (bool, int, float, str):
    raise UserError(f"--grid has {key!r}, which is no number, word or truth value")
  if key in _SHARED:
    raise UserError(f"--grid has {key!r}; {_SHARED[key]}")
  parsed = [_parse(key, value, type(part)) for value in values.split(",")]
  if len({*parsed}) < len(parsed):
    raise UserError(f"--grid={text} has a value twice")
  return key, parsed


def _parse(key: str, text: str, kind: type) -> Any:
  try:
    return _TRUTH[text] if kind is bool else kind(text)
  except (KeyError, ValueError):
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
    changed, setting = copy.deepcopy(config), dict(zip(grid, values, strict=True))
    for key, value in setting.items():
      *path, last = key.split(".")
      part = changed
      for name in path:
        part = part[name]
      part[last] = value
    run = freeze(changed)
    if not any(key.startswith("task.") for key in grid):
      run = dataclasses.replace(run, task=base.task)
    runs[setting_name(setting) or run.name] = run
  return runs


def start_params(run: RunConfig) -> PyTree | None:
  """Loads the parameters that a run starts from; None if they are fresh."""
  mesh, model = make_mesh(), Decoder(run.model)
  if run.init_from_run:
    return load_params(model, mesh, Path(run.init_from_run))
  if run.model_path:
    return hf.load_params(Path(run.model_path), run.model, param_shardings(model, mesh))
  return None
