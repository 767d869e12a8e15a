"""Compares the presets: `python -m experiments.compare --workdir=DIR`.

Every preset learns by its own config, all from the same warm start, which is trained once.
The same command goes on where an interrupted one stopped, and makes the table again when
all runs are done. `--presets` and `--seeds` choose some of the runs.
"""

import json
import runpy
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from absl import flags
from ml_collections import ConfigDict

from experiments import program
from experiments.configuration import freeze
from experiments.saved_config import to_json
from pgax.algorithms import presets
from pgax.data import byte_tokenizer
from pgax.training import UserError, train
from pgax.training.metrics import read_lines
from pgax.training.preflight import check_run

_NAMES = [preset.__name__ for preset in presets.ALL]
_THREE_SEEDS = ("reinforce", "rloo", "ppo", "grpo", "dr_grpo")
_GOAL = 0.8

_WORKDIR = flags.DEFINE_string("workdir", None, "Folder of the runs.", required=True)
_PRESETS = flags.DEFINE_list("presets", _NAMES, "Which presets, by name.")
_SEEDS = flags.DEFINE_list(
  "seeds", None, f"Which seeds; 0, 1, 2 for {', '.join(_THREE_SEEDS)} and 0 else."
)
_STEPS = flags.DEFINE_integer(
  "steps", None, "Steps of a run; the config's by default.", lower_bound=1
)


def main() -> int:
  """Does the runs that are missing, and tells how all of them went."""
  workdir = Path(_WORKDIR.value)
  for name in _PRESETS.value:
    if name not in _NAMES:
      raise UserError(f"--presets has {name!r}; allowed are {', '.join(_NAMES)}")
  seeds = {name: _seeds(name) for name in _PRESETS.value}
  results = compare(workdir, seeds, _STEPS.value)
  if results is None:
    print("\nInterrupted; give the same command again to go on.")
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
    raise UserError(f"--seeds is {','.join(given)}; give numbers, as 0,1,2") from None


def read_preset_config(name: str) -> ConfigDict:
  """The config of a preset, from its file."""
  return runpy.run_path(str(program.CONFIGS / f"{name}.py"))["get_config"]()


def compare(
  workdir: Path,
  seeds: Mapping[str, Sequence[int]],
  steps: int | None = None,
  read_config: Callable[[str], ConfigDict] = read_preset_config,
) -> dict[str, list[dict[str, float | None]]] | None:
  """Does the runs that are missing.

  Args:
    workdir: folder of all runs; `results.json` and `table.md` are written there.
    seeds: of every preset.
    steps: of a run; the config's by default.
    read_config: gives the config of a preset.

  Returns:
    Of every preset a `summary` for each seed, those of earlier calls included; None after
    an interrupt.

  Raises:
    UserError: if a run would be refused, before the first one.
  """
  # As it is written down in every run: the same however the folder is given.
  warm = workdir.resolve() / "supervised"
  start = read_config("grpo")
  start.steps = 0
  configs = {}
  for name, chosen in seeds.items():
    for seed in chosen:
      config = read_config(name)
      config.policy_from, config.supervised.steps = str(warm), 0
      config.seed, config.eval_every = seed, 1
      config.steps = config.steps if steps is None else steps
      configs[name, seed] = config
      check_run(freeze(config), byte_tokenizer(), done=0)  # all, before the first
  if not _run(start, warm):
    return None
  path = workdir / "results.json"
  results = json.loads(path.read_text()) if path.exists() else {}
  results |= {name: [] for name in seeds}
  for (name, seed), config in configs.items():
    folder = workdir / f"{name}-{seed}"
    if not _run(config, folder):
      return None
    results[name].append(summary(read_lines(folder / "metrics.jsonl")))
  results = {name: results[name] for name in _NAMES if name in results}
  path.write_text(json.dumps(results, indent=2) + "\n")
  (workdir / "table.md").write_text(table(results))
  return results


def _run(config: ConfigDict, folder: Path) -> bool:
  """Does a run, or what is left of it; whether it came to its end."""
  record = json.loads(json.dumps(to_json(config)))
  return train(freeze(config), byte_tokenizer(), folder, record).finished


def summary(rows: Sequence[Mapping[str, float]]) -> dict[str, float | None]:
  """What the table says of a run.

  Args:
    rows: its metrics, a row a step.

  Returns:
    `accuracy` at the end (None if nothing could be scored), `completions` sampled until it
    was first at the goal (None if it never was), and `cpu`, median CPU seconds of a step.
  """
  done, needed = 0, None
  for row in rows:
    done += row.get("completions/generated", 0)
    if needed is None and (row.get("eval/accuracy") or 0) >= _GOAL:
      needed = done
  return {
    "accuracy": [r["eval/accuracy"] for r in rows if "eval/accuracy" in r][-1],
    "completions": needed,
    "cpu": statistics.median(row["time/cpu"] for row in rows if "time/cpu" in row),
  }


def table(results: Mapping[str, Sequence[Mapping[str, float | None]]]) -> str:
  """The comparison as a Markdown table.

  Args:
    results: of every preset, a `summary` for each seed.

  Returns:
    A row a preset: mean over seeds, and the range where there are several.
  """
  lines = [
    f"| preset | seeds | final accuracy | completions to {_GOAL:.0%} | CPU s a step |",
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
  told = form.format(statistics.fmean(values))
  if len(values) == 1 or not with_range:
    return told
  return f"{told} ({form.format(min(values))} to {form.format(max(values))})"


if __name__ == "__main__":
  program.run(main)
