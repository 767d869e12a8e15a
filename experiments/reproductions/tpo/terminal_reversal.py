"""Runs TPO's terminal rewards: `python -m experiments.reproductions.tpo.terminal_reversal`.

Runs cells of Table 3, the cheapest first. After each cell, it writes to `--workdir`, from
all runs that are finished there, `terminal_reversal.md`, with wrong completions of the last
step next to theirs, and `terminal_reversal.png`. The same command continues an interrupted
study, and more `--seeds` add to it. With `--finished`, nothing is run: table and picture
are written while another process may be adding to the runs.
"""

import itertools
from collections.abc import Iterable

from absl import flags

from experiments import program
from experiments.reproductions.tpo.reversal_runs import (
  check_choices,
  define_flags,
  run_cells,
)
from experiments.reproductions.tpo.terminal import MATCHES, terminal_reversal
from experiments.reproductions.tpo.terminal_report import (
  LENGTHS,
  METHODS,
  Cell,
  draw,
  table,
)
from pgax.study import Program

_LENGTHS = tuple(map(str, LENGTHS))
_MATCH = flags.DEFINE_list(
  "match", list(MATCHES), "Quantity that methods without groups share with the others."
)
_LENGTH = flags.DEFINE_list("length", list(_LENGTHS), "Numbers of tokens of a prompt.")
_METHODS = flags.DEFINE_list("methods", list(METHODS), "Names of methods to run.")
define_flags()


def main() -> int:
  """Runs the cells, and prints the table."""
  check_choices("match", _MATCH.value, MATCHES)
  check_choices("length", _LENGTH.value, _LENGTHS)
  check_choices("methods", _METHODS.value, METHODS)
  cells = _cells(_MATCH.value, map(int, _LENGTH.value), _METHODS.value)
  every = _cells(MATCHES, LENGTHS, METHODS)

  def made(cell: Cell, steps: int) -> Program:
    return terminal_reversal(cell.method, cell.length, cell.match, steps)

  run_cells("terminal_reversal", cells, every, made, table, draw)
  return 0


def _cells(*choices: Iterable) -> list[Cell]:
  return [Cell(*choice) for choice in itertools.product(*choices)]


if __name__ == "__main__":
  program.run(main)
