"""Times functions in turns, so that a busy machine slows all of them alike."""

import dataclasses
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax


@dataclasses.dataclass(frozen=True)
class Time:
  """Seconds of a call, as the median of all rounds.

  Attributes:
    wall: wall time.
    cpu: CPU time of all threads of this process.
  """

  wall: float
  cpu: float


def measure(functions: Mapping[str, Callable[[], Any]], rounds: int = 5) -> dict[str, Time]:
  """Times functions, each called once per round after a first call that is not timed.

  Args:
    functions: functions by name; each returns the arrays to wait for.
    rounds: number of timed calls of each.

  Returns:
    The `Time` of each function, by name.
  """
  for function in functions.values():
    jax.block_until_ready(function())
  times = {name: [] for name in functions}
  for _ in range(rounds):
    for name, function in functions.items():
      wall, cpu = time.perf_counter(), time.process_time()
      jax.block_until_ready(function())
      times[name].append((time.perf_counter() - wall, time.process_time() - cpu))
  return {
    name: Time(*map(statistics.median, zip(*x, strict=True))) for name, x in times.items()
  }


def table(rows: list[tuple[str, ...]]) -> str:
  """Formats rows of cells as a Markdown table; the first row is the header."""
  widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
  rule = tuple("-" * width for width in widths)
  lines = [rows[0], rule, *rows[1:]]
  return "\n".join(
    "| "
    + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
    + " |"
    for row in lines
  )
