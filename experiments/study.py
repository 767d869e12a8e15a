"""Runs many seeds and settings of a config: `python -m experiments.study --workdir=DIR`.

All runs that differ in numbers alone are one compiled program. `--grid=KEY=VALUE,VALUE`
gives the values of a setting of the config, as in `--grid=algorithm.clip_high=0.2,0.28`;
several of them are combined. Settings that are no numbers, such as `sampling.group_size`,
compile a program for each value. The same command continues an interrupted study.

Writes a table with means and 95 % intervals (bootstrap over seeds), a picture with bands,
and all metrics.
"""

from pathlib import Path

from absl import flags

from experiments import program
from experiments.config_files import CONFIGS
from experiments.config_flag import ConfigFlag
from experiments.study_grid import make_runs, parse_axis, start_params
from experiments.study_report import write_study
from pgax.errors import UserError
from pgax.study import study_runs
from pgax.training import to_json

_CONFIG = ConfigFlag(str(CONFIGS / "grpo.py"), algorithm=True)
_WORKDIR = flags.DEFINE_string("workdir", None, "Folder of the study.", required=True)
_SEEDS = flags.DEFINE_integer("seeds", 10, "Number of seeds.", lower_bound=1)
_GRID = flags.DEFINE_multi_string("grid", [], "Values of a setting: KEY=VALUE,VALUE.")
_AT_ONCE = flags.DEFINE_integer(
  "at_once", None, "Number of runs that are computed at once.", lower_bound=1
)
_METRIC = flags.DEFINE_string("metric", "eval/accuracy", "Metric of table and picture.")
_GOAL = flags.DEFINE_float("goal", 0.8, "Value of the metric to count steps to.")


def main() -> int:
  """Runs the study, and prints its table."""
  config, workdir = _CONFIG.value, Path(_WORKDIR.value)
  grid = dict(parse_axis(config, text) for text in _GRID.value)
  if len(grid) < len(_GRID.value):
    raise UserError(f"--grid has a setting twice: {', '.join(_GRID.value)}")
  runs = make_runs(config, grid)
  record = {"config": to_json(config)}
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
  names = sorted({*study.metrics} - {"time/run"})
  if _METRIC.value not in names:
    raise UserError(f"--metric is {_METRIC.value!r}; the metrics are {', '.join(names)}")
  text = write_study(study, workdir, first.name, _METRIC.value, _GOAL.value)
  print(f"\n{text}\ntable, picture and metrics: {workdir}")
  return 0


if __name__ == "__main__":
  program.run(main, config=_CONFIG)
