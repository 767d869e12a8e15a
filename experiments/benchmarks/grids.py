"""Comparisons over a grid of shapes: the sampler's, and both calls' by ratio of heads."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments.benchmarks import compare, report
from experiments.benchmarks.decode_grid import key_heads
from experiments.benchmarks.shape import Shape

ROWS, PROMPT_LENS = (1, 16, 64), (16, 64, 512)


def sampler_shapes(
  shape: Shape, rows: tuple[int, ...], prompt_lens: tuple[int, ...]
) -> list[Shape]:
  """Lists the shapes of the sampler's grid.

  Args:
    shape: sizes of the model, `gen_len`, and the largest group.
    rows: numbers of completions; the group must divide them, or be larger.
    prompt_lens: numbers of tokens in a prompt.

  Returns:
    A shape for each number of key heads, of completions and of prompt tokens.

  Raises:
    ValueError: if a number of completions can't be divided into groups.
  """
  shapes = []
  for kv_heads in key_heads(shape.heads):
    for count in rows:
      group = min(shape.group, count)
      if count % group:
        raise ValueError(
          f"group is {group}; it must divide grid_rows, of which one is {count}"
        )
      for length in prompt_lens:
        sizes = {"prompts": count // group, "group": group, "prompt_len": length}
        shapes.append(dataclasses.replace(shape, kv_heads=kv_heads, micro=1, **sizes))
  return shapes


def measure(
  sides: Mapping[str, compare.Side],
  shapes: list[Shape],
  names: tuple[str, ...],
  rounds: int,
  folder: Path,
) -> list[dict[str, Any]]:
  """Measures each shape as `compare.measure` does.

  Args:
    sides: libraries by name, pgax first.
    shapes: the shapes.
    names: names of the calls.
    rounds: number of rounds of each shape.
    folder: an empty folder for weights and batches.

  Returns:
    The results, in order.
  """
  return [
    compare.measure(sides, shape, names, rounds, folder / str(number))
    for number, shape in enumerate(shapes)
  ]


def format_table(results: list[dict[str, Any]]) -> str:
  """Formats results as a table with a row for each shape and library."""
  header = None
  rows = []
  for result in results:
    size = result["args"]
    count = size["prompts"] * size["group"]
    cells = (f"{size['heads']}/{size['kv_heads']}", str(count), str(size["prompt_len"]))
    names, *libraries = report.library_rows(result)
    header = ("heads/key heads", "rows", "prompt", *names)
    rows += [(*cells, *library) for library in libraries]
  return report.table([header, *rows])
