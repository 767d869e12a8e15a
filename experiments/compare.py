"""Compares the presets: `python -m experiments.compare --workdir=DIR`.

A study of every preset with its own config, all from one supervised warm start. Presets
that need the host in a step are trained one seed after another. `--presets` and `--seeds`
select runs. The same command continues an interrupted comparison; the table is written
after each preset.
"""

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import jax
from absl import flags

from experiments import program
from experiments.preset_runs import preset_config
from experiments.study_report import interval
from pgax.algorithms import presets
from pgax.data import byte_tokenizer
from pgax.distributed.mesh import make_mesh
from pgax.errors import UserError
from pgax.models.decoder import Decoder
from pgax.study import Study, Summary, reason_for_host, study_runs, summarize
from pgax.training import RunConfig, build, to_json, train, with_settings
from pgax.training.policy import load_params
from pgax.training.preflight import check_run as check_ordinary_run
from pgax.types import PyTree

_NAMES = [preset.__name__ for preset in presets.ALL]
_GOAL = 0.8

_WORKDIR = flags.DEFINE_string("workdir", None, "Folder of the runs.", required=True)
_PRESETS = flags.DEFINE_list("presets", _NAMES, "Names of presets.")
_SEEDS = flags.DEFINE_integer("seeds", 10, "Number of seeds.", lower_bound=1)
_STEPS = flags.DEFINE_integer(
  "steps", None, "Number of steps per run; the config's by default.", lower_bound=1
)
_AT_ONCE = flags.DEFINE_integer(
  "at_once", 1, "Number of runs that are computed at once.", lower_bound=1
)


def main() -> int:
  """Runs the missing runs, and prints the table."""
  workdir = Path(_WORKDIR.value)
  for name in _PRESETS.value:
    if name not in _NAMES:
      raise UserError(f"--presets has {name!r}; allowed are {', '.join(_NAMES)}")
  if not _PRESETS.value:
    raise UserError(f"--presets is empty; allowed are {', '.join(_NAMES)}")
  text = compare(workdir, _PRESETS.value, _SEEDS.value, _STEPS.value, _AT_ONCE.value)
  if text is None:
    print("\nInterrupted; give the same command again to continue.")
    return 130
  print(f"\n{text}\ntable: {workdir / 'table.md'}")
  return 0


def compare(
  workdir: Path,
  names: Sequence[str],
  seeds: int,
  steps: int | None = None,
  at_once: int = 1,
  read_config: Callable[[str], RunConfig] = preset_config,
) -> str | None:
  """Studies the presets, from one warm start.

  Args:
    workdir: folder of all runs; `table.md` is written there.
    names: names of presets.
    seeds: number of seeds.
    steps: number of steps of a run; None takes the config's.
    at_once: number of runs that are computed at once. On CPUs one is fastest at the size of
      these runs, whose matrices fill the caches.
    read_config: returns the config of a preset.

  Returns:
    The table; None after an interrupt.

  Raises:
    UserError: if a run would be rejected, before the first one starts.
  """
  tokenizer = byte_tokenizer()
  # Absolute, because it is saved with every run.
  warm = workdir.resolve() / "supervised"
  start = dataclasses.replace(read_config("grpo"), steps=0)
  changes = {"supervised.steps": 0, "evaluation.every": 1}
  if steps is not None:
    changes["steps"] = steps
  configs = {}
  for name in names:
    config = with_settings(read_config(name), changes)
    check_ordinary_run(build(config), tokenizer)
    configs[name] = dataclasses.replace(config, init_from_run=str(warm))
  if not _train(start, warm):
    return None
  model, rows = Decoder(start.model), {}
  params = load_params(model, make_mesh(), warm)
  for name in names:
    study = _study(name, configs[name], params, workdir, seeds, at_once)
    rows[name] = summarize(study, "eval/accuracy", _GOAL)[name]
    per_step = float(study.metrics["completions/generated"].mean())
    (workdir / f"{name}.json").write_text(_row(name, rows[name], seeds, per_step))
    text = table(workdir)
    jax.clear_caches()  # programs of other presets are not needed again
  return text


def _train(config: RunConfig, folder: Path) -> bool:
  return train(config, byte_tokenizer(), folder, to_json(config)).finished


def _study(
  name: str, config: RunConfig, params: PyTree, workdir: Path, seeds: int, at_once: int
) -> Study:
  """Runs all seeds of a preset, one at a time if it needs the host in a step."""
  run = build(dataclasses.replace(config, init_from_run=""))  # it starts from params
  return study_runs(
    {name: run},
    byte_tokenizer(),
    seeds=seeds,
    at_once=1 if reason_for_host(run) else at_once,
    params=params,
    workdir=workdir / name,
    record={"config": to_json(config)},
  )


def _row(name: str, summary: Summary, seeds: int, per_step: float) -> str:
  """A row of the table as JSON."""
  completions = [x * per_step for x in summary.goal_step]
  values = dataclasses.asdict(summary) | {
    "name": name,
    "seeds": seeds,
    "completions": completions,
  }
  return json.dumps(values, indent=2) + "\n"


def table(workdir: Path) -> str:
  """Formats the rows of all presets that are done, and writes `table.md`.

  Args:
    workdir: folder of the comparison.

  Returns:
    A Markdown table: means over seeds with their 95 % intervals.
  """
  lines = [
    f"| preset | seeds | final accuracy | area | completions to {_GOAL:.0%} | s per run |",
    "| --- | ---: | ---: | ---: | ---: | ---: |",
  ]
  for name in _NAMES:
    path = workdir / f"{name}.json"
    if path.exists():
      lines.append(_line(json.loads(path.read_text())))
  text = "\n".join(lines) + "\n"
  (workdir / "table.md").write_text(text)
  return text


def _line(row: Mapping) -> str:
  seeds, reached = row["seeds"], row["reached"]
  needed = "not reached"
  if reached:
    needed = interval(row["completions"], "{:,.0f}")
    needed += f" in {reached} of {seeds}" if reached < seeds else ""
  cells = (
    row["name"],
    str(seeds),
    interval(row["final"], "{:.1%}"),
    interval(row["area"], "{:.1%}"),
    needed,
    f"{row['seconds']:.0f}",
  )
  return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
  program.run(main)
