"""Times of several functions, taken in turns so that a busy machine slows all of them."""

import dataclasses
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax


@dataclasses.dataclass(frozen=True)
class Time:
  """Seconds of a call, medians of all rounds.

  Attributes:
    wall: on the clock.
    cpu: of all threads of this process.
  """

  wall: float
  cpu: float


def measure(functions: Mapping[str, Callable[[], Any]], rounds: int = 5) -> dict[str, Time]:
  """Calls every function once a round, after a call that is not counted.

  Args:
    functions: by name; each returns what must be computed by its end.
    rounds: number of times that each is called.

  Returns:
    The `Time` of each.
  """
  for function in functions.values():
    jax.block_until_ready(function())
  found = {name: [] for name in functions}
  for _ in range(rounds):
    for name, function in functions.items():
      wall, cpu = time.perf_counter(), time.process_time()
      jax.block_until_ready(function())
      found[name].append((time.perf_counter() - wall, time.process_time() - cpu))
  return {
    name: Time(*map(statistics.median, zip(*x, strict=True))) for name, x in found.items()
  }


def table(rows: list[tuple[str, ...]]) -> str:
  """Rows of cells as Markdown, the first being the header."""
  widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
  rule = tuple("-" * width for width in widths)
  lines = [rows[0], rule, *rows[1:]]
  return "\n".join(
    "| "
    + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
    + " |"
    for row in lines
  )
