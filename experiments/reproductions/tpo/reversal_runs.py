"""Runs the cells of a table of token reversal, and reports those that are finished."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from absl import flags
from matplotlib.figure import Figure

from pgax.errors import UserError
from pgax.study import Program, run_program
from pgax.study.files import load_chunk


def check_choices(flag: str, values: Sequence[str], allowed: Sequence[str]) -> None:
  """Checks the values of a flag.

  Args:
    flag: name of the flag.
    values: its values.
    allowed: values to choose from.

  Raises:
    UserError: if there are no values, or one that is not allowed or there twice.
  """
  unknown = [x for x in values if x not in allowed]
  if unknown or not values or len({*values}) < len(values):
    raise UserError(
      f"--{flag} is {','.join(values)!r}; give different ones of {', '.join(allowed)}"
    )


def define_flags() -> None:
  """Defines the flags that `run_cells` reads."""
  flags.DEFINE_string("workdir", None, "Folder of the results.", required=True)
  flags.DEFINE_integer("seeds", 20, "Number of seeds.", lower_bound=1)
  flags.DEFINE_integer(
    "at_once", 1, "Number of runs that are computed at once.", lower_bound=1
  )
  flags.DEFINE_integer(
    "steps", None, "Number of steps, instead of that of each cell.", lower_bound=1
  )
  flags.DEFINE_bool("finished", False, "Whether to run nothing.")


def run_cells(
  name: str,
  cells: Sequence[Any],
  every: Sequence[Any],
  program: Callable[[Any, int], Program],
  table: Callable[[Mapping[Any, np.ndarray]], str],
  draw: Callable[[Mapping[Any, np.ndarray]], Figure],
) -> None:
  """Runs the seeds of cells that are not finished, and reports after each cell.

  Args:
    name: name of the files of the report.
    cells: cells to run, hashable. Each has `steps`, its number of steps; `cost`, larger if
      it takes longer; `folder`, the name of the folder of its runs; `record`, JSON values
      that identify it; and `label`, its name in the progress bar.
    every: all cells of the report, which reads those that are finished.
    program: makes the program of a cell, given its number of steps.
    table: formats `[seeds, steps]` errors of each cell.
    draw: draws them.

  Raises:
    UserError: if no run is finished.
  """
  values = flags.FLAGS
  workdir = Path(values.workdir)
  for cell in [None] if values.finished else sorted(cells, key=lambda x: x.cost):
    if cell is not None:
      run_program(
        program(cell, values.steps or cell.steps),
        [{}],
        range(values.seeds),
        at_once=values.at_once,
        folder=workdir / cell.folder,
        record={"at_once": values.at_once, **cell.record},
        name=cell.label,
      )
    errors = {x: read_errors(workdir / x.folder, values.seeds) for x in every}
    results = {x: y for x, y in errors.items() if y is not None}
    if not results:
      raise UserError(f"{workdir} has no finished run")
    text = table(results)
    (workdir / f"{name}.md").write_text(text)
    draw(results).savefig(workdir / f"{name}.png", dpi=110)
    print(f"\n{text}")


def read_errors(folder: Path, seeds: int) -> np.ndarray | None:
  """Reads the errors of a cell's finished runs.

  Args:
    folder: folder of the cell.
    seeds: largest number of seeds to read.

  Returns:
    `[seeds, steps]` errors, or None if no run is finished.
  """
  spans = [tuple(map(int, x.stem.split("_")[1::2])) for x in folder.glob("runs_*_to_*.npz")]
  # Of two chunks that start alike, the shorter one is of a run with fewer seeds.
  longest = dict(sorted(spans))
  chunks = [load_chunk(folder / f"runs_{x}_to_{y}") for x, y in longest.items()]
  return np.concatenate([x["error"] for x in chunks])[:seeds] if chunks else None
