"""Compares the presets: `python -m experiments.compare --workdir=DIR`.

Trains every preset with its own config, all from one supervised warm start. `--presets` and
`--seeds` select runs. The same command continues an interrupted comparison; the table is
written when all runs are done.
"""

import json
import runpy
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from absl import flags
from ml_collections import ConfigDict

from experiments import program
from experiments.config_files import CONFIGS
from experiments.configuration import freeze
from experiments.saved_config import to_json
from pgax.algorithms import presets
from pgax.data import byte_tokenizer
from pgax.errors import UserError
from pgax.runs.loggers import read_metrics
from pgax.training import Progress, train
from pgax.training.preflight import check_run

_NAMES = [preset.__name__ for preset in presets.ALL]
_THREE_SEEDS = ("reinforce", "rloo", "ppo", "grpo", "dr_grpo")
_GOAL = 0.8

_WORKDIR = flags.DEFINE_string("workdir", None, "Folder of the runs.", required=True)
_PRESETS = flags.DEFINE_list("presets", _NAMES, "Names of presets.")
_SEEDS = flags.DEFINE_list(
  "seeds",
  None,
  f"Seeds; by default 0, 1, 2 for {', '.join(_THREE_SEEDS)} and 0 for others.",
)
_STEPS = flags.DEFINE_integer(
  "steps", None, "Number of steps per run; the config's by default.", lower_bound=1
)


def main() -> int:
  """Trains the runs that are missing, and prints the table."""
  workdir = Path(_WORKDIR.value)
  for name in _PRESETS.value:
    if name not in _NAMES:
      raise UserError(f"--presets has {name!r}; allowed are {', '.join(_NAMES)}")
  seeds = {name: _seeds(name) for name in _PRESETS.value}
  results = compare(workdir, seeds, _STEPS.value)
  if results is None:
    print("\nInterrupted; give the same command again to continue.")
    return 130
  print(f"\n{table(results)}\ntable: {workdir / 'table.md'}")
  return 0


def _seeds(name: str) -> list[int]:
  given = _SEEDS.value
  if given is None:
    return [0, 1, 2] if name in _THREE_SEEDS else [0]
  try:
    return [int(seed) for seed in given]
  except ValueError:
    raise UserError(f"--seeds is {','.join(given)}; give numbers, such as 0,1,2") from None


def read_preset_config(name: str) -> ConfigDict:
  """Reads the config of a preset from its file."""
  return runpy.run_path(str(CONFIGS / f"{name}.py"))["get_config"]()


def compare(
  workdir: Path,
  seeds: Mapping[str, Sequence[int]],
  steps: int | None = None,
  read_config: Callable[[str], ConfigDict] = read_preset_config,
) -> dict[str, list[dict[str, float | None]]] | None:
  """Trains the runs that are missing.

  Args:
    workdir: folder of all runs; `results.json` and `table.md` are written there.
    seeds: seeds of every preset.
    steps: number of steps of a run; None takes the config's.
    read_config: returns the config of a preset.

  Returns:
    A `summary` for each seed of every preset, those of earlier calls included; None after
    an interrupt.

  Raises:
    UserError: if a run would be rejected, before the first one starts.
  """
  # Absolute, because it is saved with every run.
  warm = workdir.resolve() / "supervised"
  start = read_config("grpo")
  start.steps = 0
  configs = {}
  for name, chosen in seeds.items():
    for seed in chosen:
      config = read_config(name)
      config.init_from_run, config.supervised.steps = str(warm), 0
      config.seed, config.evaluation.every = seed, 1
      config.steps = config.steps if steps is None else steps
      configs[name, seed] = config
      # Before any run starts, so the warm start need not exist yet.
      check_run(freeze(config), byte_tokenizer(), done=Progress("supervised", 0))
  if not _run(start, warm):
    return None
  path = workdir / "results.json"
  results = json.loads(path.read_text()) if path.exists() else {}
  results |= {name: [] for name in seeds}
  for (name, seed), config in configs.items():
    folder = workdir / f"{name}-{seed}"
    if not _run(config, folder):
      return None
    results[name].append(summary(read_metrics(folder)))
  results = {name: results[name] for name in _NAMES if name in results}
  path.write_text(json.dumps(results, indent=2) + "\n")
  (workdir / "table.md").write_text(table(results))
  return results


def _run(config: ConfigDict, folder: Path) -> bool:
  """Starts or continues a run; returns whether it is finished."""
  record = json.loads(json.dumps(to_json(config)))
  return train(freeze(config), byte_tokenizer(), folder, record).finished


def summary(rows: Sequence[Mapping[str, float]]) -> dict[str, float | None]:
  """Summarizes a run for the table.

  Args:
    rows: rows of `metrics.jsonl`.

  Returns:
    `accuracy` at the end (None if nothing could be scored), number of `completions` sampled
    until the goal was first reached (None if it was not), and `cpu`, median CPU seconds of
    a step.
  """
  sampled, needed = 0, None
  for row in rows:
    sampled += row.get("completions/generated", 0)
    if needed is None and (row.get("eval/accuracy") or 0) >= _GOAL:
      needed = sampled
  return {
    "accuracy": [r["eval/accuracy"] for r in rows if "eval/accuracy" in r][-1],
    "completions": needed,
    "cpu": statistics.median(row["time/cpu"] for row in rows if "time/cpu" in row),
  }


def table(results: Mapping[str, Sequence[Mapping[str, float | None]]]) -> str:
  """Formats the comparison as a Markdown table.

  Args:
    results: a `summary` for each seed of every preset.

  Returns:
    A row for each preset: the mean over seeds, and the range if there are several.
  """
  lines = [
    f"| preset | seeds | final accuracy | completions to {_GOAL:.0%} | CPU s per step |",
    "| --- | ---: | ---: | ---: | ---: |",
  ]
  for name, rows in results.items():
    accuracy, needed = ([row[key] for row in rows] for key in ("accuracy", "completions"))
    cells = [
      name,
      str(len(rows)),
      "unknown" if None in accuracy else _spread(accuracy, "{:.1%}"),
      "not reached" if None in needed else _spread(needed, "{:,.0f}"),
      _spread([row["cpu"] for row in rows], "{:.2f}", with_range=False),
    ]
    lines.append(f"| {' | '.join(cells)} |")
  return "\n".join(lines) + "\n"


def _spread(values: Sequence[float], form: str, with_range: bool = True) -> str:
  mean = form.format(statistics.fmean(values))
  if len(values) == 1 or not with_range:
    return mean
  return f"{mean} ({form.format(min(values))} to {form.format(max(values))})"


if __name__ == "__main__":
  program.run(main)
