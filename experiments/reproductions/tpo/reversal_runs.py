"""The runs of a table's cells: their choice, their computation, and their files."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
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


def run_cell(
  folder: Path,
  program: Program,
  seeds: int,
  at_once: int,
  record: Mapping[str, Any],
  name: str,
) -> None:
  """Runs the seeds of a cell that are not finished.

  Args:
    folder: folder of the cell.
    program: program of the cell.
    seeds: number of seeds.
    at_once: number of runs that are computed at once.
    record: JSON values that identify the cell.
    name: name of the cell, for the progress bar.
  """
  run_program(
    program,
    [{}],
    range(seeds),
    at_once=at_once,
    folder=folder,
    record={"at_once": at_once, **record},
    name=name,
  )


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


def write_results(
  workdir: Path,
  name: str,
  cells: Sequence[Any],
  seeds: int,
  table: Callable[[Mapping[Any, np.ndarray]], str],
  draw: Callable[[Mapping[Any, np.ndarray]], Figure],
) -> None:
  """Writes and prints what all finished runs of a folder come to.

  Args:
    workdir: folder of the results.
    name: name of the files.
    cells: all cells of the table; each has the name of its folder.
    seeds: largest number of seeds to read.
    table: formats `[seeds, steps]` errors of each cell.
    draw: draws them.

  Raises:
    UserError: if no run is finished.
  """
  errors = {cell: read_errors(workdir / cell.folder, seeds) for cell in cells}
  results = {cell: x for cell, x in errors.items() if x is not None}
  if not results:
    raise UserError(f"{workdir} has no finished run")
  text = table(results)
  (workdir / f"{name}.md").write_text(text)
  draw(results).savefig(workdir / f"{name}.png", dpi=110)
  print(f"\n{text}")
