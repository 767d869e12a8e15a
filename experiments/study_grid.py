"""The runs of a study by the command line: values of settings, and all combinations."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.settings import parse, setting_kind, setting_path
from pgax.distributed.mesh import make_mesh
from pgax.distributed.partitioning import param_shardings
from pgax.errors import UserError
from pgax.models import hf
from pgax.models.decoder import Decoder
from pgax.settings import with_settings
from pgax.study import setting_name
from pgax.training import RunConfig, build
from pgax.training.policy import load_params
from pgax.types import PyTree

_START = "all settings start from the same parameters, so run a study for each"
# Settings that all runs of a study share.
_SHARED = {
  "seed": "every setting has the seeds of --seeds",
  "init_from_run": _START,
  "model.path": _START,
}


def parse_axis(config: RunConfig, text: str) -> tuple[str, list[Any]]:
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
  try:
    kind = setting_kind(config, setting_path(key))
  except UserError as error:
    raise UserError(f"--grid has {key!r}: {error}") from None
  if not values:
    raise UserError(f"--grid={text} has no values; give KEY=VALUE,VALUE")
  if kind is None or kind.type not in (bool, int, float, str):
    raise UserError(f"--grid has {key!r}, which is no number, word or truth value")
  if key in _SHARED:
    raise UserError(f"--grid has {key!r}; {_SHARED[key]}")
  parsed = [parse(f"--grid has {key}", value, kind) for value in values.split(",")]
  if len({*parsed}) < len(parsed):
    raise UserError(f"--grid={text} has a value twice")
  return key, parsed


def make_runs(config: RunConfig, grid: Mapping[str, Sequence[Any]]) -> dict[str, RunConfig]:
  """Makes the runs of all combinations of a grid.

  Args:
    config: config of the runs.
    grid: values of settings, by their keys in the config.

  Returns:
    Configurations by their names, such as `clip_high=0.2`. Equal tasks are one task.
  """
  # Made once, since equal tasks are one task.
  base = config
  if not any(key.startswith("task.") for key in grid):
    base = dataclasses.replace(config, task=build(config).task)
  runs = {}
  for values in itertools.product(*grid.values()):
    setting = dict(zip(grid, values, strict=True))
    try:
      run = build(with_settings(base, setting))
    except ValueError as error:
      raise UserError(str(error)) from error
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
