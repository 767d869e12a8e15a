"""Runs TPO's terminal rewards: `python -m experiments.reproductions.tpo.terminal_reversal`.

Runs cells of Table 3, the cheapest first. After each cell, it writes to `--workdir`, from
all runs that are finished there, `terminal_reversal.md`, with wrong completions of the last
step next to theirs, and `terminal_reversal.png`. The same command continues an interrupted
study, and more `--seeds` add to it. With `--finished`, nothing is run: table and picture
are written while another process may be adding to the runs.
"""

from pathlib import Path

from absl import flags

from experiments import program
from experiments.reproductions.tpo import reversal_methods
from experiments.reproductions.tpo.reversal_runs import (
  check_choices,
  run_cell,
  write_results,
)
from experiments.reproductions.tpo.terminal import MATCHES, terminal_reversal
from experiments.reproductions.tpo.terminal_report import (
  LENGTHS,
  METHODS,
  STEPS,
  Cell,
  draw,
  table,
)

_LENGTHS = tuple(map(str, LENGTHS))
_WORKDIR = flags.DEFINE_string("workdir", None, "Folder of the results.", required=True)
_MATCH = flags.DEFINE_list(
  "match", list(MATCHES), "What methods without groups share with the others."
)
_LENGTH = flags.DEFINE_list("length", list(_LENGTHS), "Numbers of tokens of a prompt.")
_METHODS = flags.DEFINE_list("methods", list(METHODS), "Names of methods to run.")
_SEEDS = flags.DEFINE_integer("seeds", 20, "Number of seeds.", lower_bound=1)
_AT_ONCE = flags.DEFINE_integer(
  "at_once", 1, "Number of runs that are computed at once.", lower_bound=1
)
_STEPS = flags.DEFINE_integer("steps", STEPS, "Number of steps.", lower_bound=1)
_FINISHED = flags.DEFINE_bool("finished", False, "Whether to run nothing.")


def main() -> int:
  """Runs the cells, and prints the table."""
  workdir = Path(_WORKDIR.value)
  check_choices("match", _MATCH.value, MATCHES)
  check_choices("length", _LENGTH.value, _LENGTHS)
  check_choices("methods", _METHODS.value, METHODS)
  cells = [
    Cell(match, int(length), method)
    for match in _MATCH.value
    for length in _LENGTH.value
    for method in _METHODS.value
  ]
  if _FINISHED.value:
    write(workdir)
    return 0
  for cell in sorted(cells, key=_tokens):
    run(workdir, cell)
    write(workdir)
  return 0


def _tokens(cell: Cell) -> int:
  """Number of tokens of a step's updates, which take most of its time."""
  method = reversal_methods.METHODS[cell.method]
  alone = cell.match == "prompts" and not cell.in_groups
  completions = 1 if alone else reversal_methods.CANDIDATES
  return completions * cell.length * method.epochs


def run(workdir: Path, cell: Cell) -> None:
  """Runs the seeds of a cell that are not finished."""
  run_cell(
    workdir / cell.folder,
    terminal_reversal(cell.method, cell.length, cell.match, _STEPS.value),
    _SEEDS.value,
    _AT_ONCE.value,
    {"method": cell.method, "length": cell.length},
    f"{cell.method}, {cell.length} tokens, as many {cell.match}",
  )


def write(workdir: Path) -> None:
  """Writes and prints what all finished runs of a folder come to."""
  cells = [Cell(x, y, z) for x in MATCHES for y in LENGTHS for z in METHODS]
  write_results(workdir, "terminal_reversal", cells, _SEEDS.value, table, draw)


if __name__ == "__main__":
  program.run(main)
