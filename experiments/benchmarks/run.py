"""Times sampling and updates of any shape: `python -m experiments.benchmarks.run --json`.

The last line is a JSON object; with `--json`, nothing else is printed on standard output.
`--peers` runs other libraries on the same shape, in turn. `--grid` measures many shapes,
and `--skewed` counts the decoding steps of completions of different lengths.
"""

import contextlib
import dataclasses
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from absl import flags

from experiments import program
from experiments.benchmarks import compare, decode_grid, grids, report, skewed
from experiments.benchmarks.children import PEERS, installed_peers, open_children
from experiments.benchmarks.names_flag import define_names
from experiments.benchmarks.shape import DTYPES, Shape, pin
from experiments.settings import docstring_items
from pgax.errors import UserError

_GRIDS = ("decode", "sampler", "heads")


def _define_shape() -> dict[str, flags.FlagHolder]:
  """Defines a flag for each size of a `Shape`."""
  texts, holders = docstring_items(Shape), {}
  makers = {int: flags.DEFINE_integer, float: flags.DEFINE_float, bool: flags.DEFINE_bool}
  for field in dataclasses.fields(Shape):
    text = texts[field.name]
    text = text[:1].upper() + text[1:]
    if field.type is str:
      holder = flags.DEFINE_enum(field.name, field.default, DTYPES, text)
    else:
      holder = makers[field.type](field.name, field.default, text)
    holders[field.name] = holder
  return holders


_SHAPE = _define_shape()
_ITERS = flags.DEFINE_integer("iters", 5, "Number of rounds.", lower_bound=1)
_SKIP_TRAIN = flags.DEFINE_bool("skip_train", False, "Whether to time the sampler only.")
_JSON = flags.DEFINE_bool("json", False, "Whether to print the JSON object only.")
_OUT = flags.DEFINE_string("out", None, "File to write the JSON object to.")
_PEERS = define_names(
  "peers",
  tuple(PEERS),
  f"Libraries to compare with: some of {', '.join(PEERS)}; by default those installed.",
)
_PEER_PYTHON = flags.DEFINE_multi_string(
  "peer_python", [], "NAME=PATH, the Python interpreter that has a library installed."
)
_GRID = define_names(
  "grid",
  _GRIDS,
  "Grids to measure, by default all: decode (attention of one token), sampler, heads "
  "(sampling and update for each number of key heads).",
)
_GRID_ROWS = flags.DEFINE_list("grid_rows", [], "Numbers of completions in a grid.")
_GRID_SLOTS = flags.DEFINE_list("grid_slots", [], "Numbers of keys in the decode grid.")
_GRID_PROMPTS = flags.DEFINE_list(
  "grid_prompt_lens", [], "Numbers of prompt tokens in the sampler's grid."
)
_SKEWED = flags.DEFINE_bool(
  "skewed", False, "Whether to count the decoding steps of slots that refill."
)


def main() -> None:
  """Measures and prints."""
  try:
    sizes = {name: holder.value for name, holder in _SHAPE.items()}
    # A grid has every number of key heads.
    shape = Shape(**sizes | ({"kv_heads": 0} if _GRID.value else {}))
    pin(shape.threads)
    _check(shape)
    result, text = _measure(shape)
  except ValueError as error:  # an impossible shape
    raise UserError(str(error)) from None
  line = json.dumps(result)
  if _OUT.value:
    program.output_file(_OUT.value).write_text(line + "\n")
  if not _JSON.value:
    print(text)
  print(line)


def _check(shape: Shape) -> None:
  """Checks flags that exclude each other, before anything is measured."""
  if _OUT.value:
    program.output_file(_OUT.value)
  if _PEERS.value and shape.dtype != "float32":
    raise ValueError(f"dtype is {shape.dtype}; --peers compares in float32")
  if _SKEWED.value and shape.rows % skewed.PER_SLOT[0]:
    raise ValueError(
      f"prompts * group is {shape.rows}; --skewed takes a multiple of {skewed.PER_SLOT[0]}"
    )


def _measure(shape: Shape) -> tuple[dict[str, Any], str]:
  """Runs the measurement of the flags; returns the JSON object and its text."""
  if _SKEWED.value:
    rows = skewed.measure(shape)
    return {"skewed": rows}, skewed.format_table(rows)
  if _GRID.value:
    parts = {name: _measure_grid(shape, name) for name in _GRID.value}
    texts = [text for _, text in parts.values()]
    return {name: rows for name, (rows, _) in parts.items()}, "\n\n".join(texts)
  with _open_sides() as (sides, folder):
    result = compare.measure(sides, shape, _calls(), _ITERS.value, folder / "shape")
  rows = report.table(report.library_rows(result))
  return result, f"{report.limits(result)}\n{rows}"


def _calls() -> tuple[str, ...]:
  update = () if _SKIP_TRAIN.value else compare.UPDATE
  return (*compare.GENERATE, *update, *compare.LIMITS)


def _measure_grid(shape: Shape, name: str) -> tuple[list[dict[str, Any]], str]:
  """Measures a grid; returns its rows and its table."""
  rows, iters = _numbers(_GRID_ROWS), _ITERS.value
  if name == "decode":
    sizes = (rows or decode_grid.ROWS, _numbers(_GRID_SLOTS) or decode_grid.SLOTS)
    results = decode_grid.measure(shape.heads, shape.head_dim, shape.dtype, *sizes)
    return results, decode_grid.format_table(results)
  if name == "sampler":
    lengths = _numbers(_GRID_PROMPTS) or grids.PROMPT_LENS
    shapes = grids.sampler_shapes(shape, rows or grids.ROWS, lengths)
    calls = ("generate",)
  else:
    heads = reversed(decode_grid.key_heads(shape.heads))
    shapes = [dataclasses.replace(shape, kv_heads=number) for number in heads]
    calls = _calls()
  with _open_sides() as (sides, folder):
    results = grids.measure(sides, shapes, calls, iters, folder)
  return results, grids.format_table(results)


def _numbers(holder: flags.FlagHolder) -> tuple[int, ...]:
  """Parses a list of positive numbers."""
  if not all(text.isdecimal() and int(text) for text in holder.value):
    raise ValueError(
      f"--{holder.name} is {','.join(holder.value)}; it must be numbers above 0"
    )
  return tuple(map(int, holder.value))


def _pythons() -> Mapping[str, str]:
  """Parses `--peer_python`."""
  pairs = [text.partition("=")[::2] for text in _PEER_PYTHON.value]
  for name, path in pairs:
    if name not in PEERS or not Path(path).is_file():
      raise ValueError(
        f"--peer_python is {name}={path}; it must be NAME=PATH with a NAME of "
        f"{', '.join(PEERS)} and the PATH of a Python interpreter"
      )
  return dict(pairs)


@contextlib.contextmanager
def _open_sides() -> Iterator[tuple[dict[str, compare.Side], Path]]:
  """Starts the processes of all libraries; also yields an empty folder for them."""
  pythons, peers = _pythons(), ()
  if _PEERS.value:
    installed = installed_peers(pythons)
    peers = tuple(name for name in _PEERS.value if name in installed)
    missing = [name for name in _PEERS.value if name not in installed]
    if missing:
      text = f"{', '.join(missing)} not installed; see --peer_python"
      if _PEERS.value != tuple(PEERS):
        raise ValueError(text)
      print(text, file=sys.stderr)
  with (
    tempfile.TemporaryDirectory() as folder,
    open_children(("pgax", *peers), pythons) as sides,
  ):
    yield sides, Path(folder)


if __name__ == "__main__":
  program.run(main)
