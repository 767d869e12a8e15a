"""Runs TPO's token reversal: `python -m experiments.reproductions.tpo.token_reversal`.

Runs each cell of Table 1 for more steps than the paper needs, the shortest cells first, and
writes `token_reversal.md`, with steps to 1 % error next to theirs, and `token_reversal.png`
to `--workdir` after each cell, from all runs that are finished there. The same command
continues an interrupted study, and more `--seeds` add to it. With `--finished`, nothing is
run: table and picture are written while another process may be adding to the runs.
"""

from absl import flags

from experiments import program
from experiments.reproductions.tpo.reversal import token_reversal
from experiments.reproductions.tpo.reversal_report import THEIRS, Cell, draw, table
from experiments.reproductions.tpo.reversal_rollout import Task
from experiments.reproductions.tpo.reversal_runs import (
  check_choices,
  define_flags,
  run_cells,
)
from pgax.study import Program

_VOCABS = tuple(map(str, THEIRS["TPO"]))
_VOCAB = flags.DEFINE_list("vocab", list(_VOCABS), "Sizes of the vocabulary to run.")
_METHODS = flags.DEFINE_list("methods", list(THEIRS), "Names of methods to run.")
define_flags()


def main() -> int:
  """Runs the cells, and prints the table."""
  check_choices("vocab", _VOCAB.value, _VOCABS)
  check_choices("methods", _METHODS.value, tuple(THEIRS))
  cells = [Cell(int(x), y) for x in _VOCAB.value for y in _METHODS.value]
  every = [Cell(int(vocab), method) for vocab in _VOCABS for method in THEIRS]

  def made(cell: Cell, steps: int) -> Program:
    return token_reversal(cell.method, Task(cell.vocab), steps)

  run_cells("token_reversal", cells, every, made, table, draw)
  return 0


if __name__ == "__main__":
  program.run(main)
