"""Runs TPO's token reversal: `python -m experiments.reproductions.tpo.token_reversal`.

Runs each cell of Table 1 for more steps than the paper needs, the shortest cells first, and
writes `token_reversal.md`, with steps to 1 % error next to theirs, and `token_reversal.png`
to `--workdir` after each cell, from all runs that are finished there. The same command
continues an interrupted study, and more `--seeds` add to it. With `--finished`, nothing is
run: table and picture are written while another process may be adding to the runs.
"""

import dataclasses
from pathlib import Path

from absl import flags

from experiments import program
from experiments.reproductions.tpo.reversal import token_reversal
from experiments.reproductions.tpo.reversal_methods import METHODS
from experiments.reproductions.tpo.reversal_report import THEIRS, Cell, draw, table
from experiments.reproductions.tpo.reversal_rollout import Task
from experiments.reproductions.tpo.reversal_runs import (
  check_choices,
  run_cell,
  write_results,
)

_VOCABS = tuple(map(str, THEIRS["TPO"]))
_WORKDIR = flags.DEFINE_string("workdir", None, "Folder of the results.", required=True)
_VOCAB = flags.DEFINE_list("vocab", list(_VOCABS), "Sizes of the vocabulary to run.")
_METHODS = flags.DEFINE_list("methods", list(THEIRS), "Names of methods to run.")
_SEEDS = flags.DEFINE_integer("seeds", 20, "Number of seeds.", lower_bound=1)
_AT_ONCE = flags.DEFINE_integer(
  "at_once", 1, "Number of runs that are computed at once.", lower_bound=1
)
_STEPS = flags.DEFINE_integer(
  "steps", None, "Number of steps, instead of one for each cell.", lower_bound=1
)
_FINISHED = flags.DEFINE_bool("finished", False, "Whether to run nothing.")


def main() -> int:
  """Runs the cells, and prints the table."""
  workdir = Path(_WORKDIR.value)
  check_choices("vocab", _VOCAB.value, _VOCABS)
  check_choices("methods", _METHODS.value, tuple(THEIRS))
  cells = [Cell(int(x), y) for x in _VOCAB.value for y in _METHODS.value]
  if _FINISHED.value:
    write(workdir)
    return 0
  for cell in sorted(cells, key=_updates):
    run(workdir, cell)
    write(workdir)
  return 0


def _updates(cell: Cell) -> int:
  """Number of updates of a run, which takes most of its time."""
  return cell.steps * METHODS[cell.method].epochs


def run(workdir: Path, cell: Cell) -> None:
  """Runs the seeds of a cell that are not finished."""
  task, steps = Task(cell.vocab), _STEPS.value or cell.steps
  run_cell(
    workdir / cell.folder,
    token_reversal(cell.method, task, steps),
    _SEEDS.value,
    _AT_ONCE.value,
    {"method": cell.method, "task": dataclasses.asdict(task)},
    f"{cell.method}, {cell.vocab} tokens",
  )


def write(workdir: Path) -> None:
  """Writes and prints what all finished runs of a folder come to."""
  cells = [Cell(int(vocab), method) for vocab in _VOCABS for method in THEIRS]
  write_results(workdir, "token_reversal", cells, _SEEDS.value, table, draw)


if __name__ == "__main__":
  program.run(main)
