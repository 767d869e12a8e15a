"""Times libraries in turn on one shape, and compares them."""

import dataclasses
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.benchmarks import machine
from experiments.benchmarks.children import Child
from experiments.benchmarks.shape import Shape
from experiments.benchmarks.worker import Worker

GENERATE = ("generate", "first_token")
UPDATE = ("update",)
LIMITS = ("matmul", "copy")
# Beginning of the keys of a call's times.
_PREFIX = {"generate": "gen", "first_token": "first_token", "update": "step"}
_SAME_WEIGHTS = ("transformers", "trl")
_TOLERANCE = 1e-3

Side = Child | Worker


def measure(
  sides: Mapping[str, Side],
  shape: Shape,
  names: tuple[str, ...],
  rounds: int,
  folder: Path | None = None,
) -> dict[str, Any]:
  """Times every call of every library once per round, in turn, and compares them.

  A machine that is busy for a while slows all of them alike.

  Args:
    sides: libraries by name, pgax first.
    shape: sizes of model and batch.
    names: names of the calls.
    rounds: number of rounds.
    folder: where pgax writes the weights and the batch; None without other libraries.

  Returns:
    The results of pgax, and under `peers` those of the other libraries, with ratios.

  Raises:
    RuntimeError: if gradients on the same weights and batch differ.
  """
  built = {}
  for name, side in sides.items():
    _note(f"{shape.heads}/{shape.kv_heads} heads, {shape.rows} rows: {name} compiles")
    built[name] = side.build(shape, names, folder)
  _check_gradients({name: build["values"] for name, build in built.items()})
  times = {name: {call: [] for call in build["names"]} for name, build in built.items()}
  for number in range(rounds):
    _note(f"round {number + 1} of {rounds}")
    for name, side in sides.items():
      for call, rows in times[name].items():
        rows.append(side.call(call))
  results = {name: _summary(shape, build, times[name]) for name, build in built.items()}
  ours = results.pop("pgax")
  ours |= {"args": {**dataclasses.asdict(shape), "rounds": rounds}}
  ours |= _shares(shape, ours, times["pgax"])
  for name, result in results.items():
    result["ratio"] = _ratios(times["pgax"], times[name])
  return ours | ({"peers": results} if results else {})


def _note(text: str) -> None:
  """Reports progress where it does not disturb the JSON object."""
  print(text, file=sys.stderr, flush=True)


def _check_gradients(values: Mapping[str, Mapping[str, Sequence[float]]]) -> None:
  """Compares the norms of two gradients; the second depends on the first update."""
  if "update" not in values["pgax"]:
    return
  norms = {
    name: values[name]["update"] for name in ("pgax", *_SAME_WEIGHTS) if name in values
  }
  for name, other in norms.items():
    pairs = zip(norms["pgax"], other, strict=True)
    if any(abs(x - y) > _TOLERANCE * abs(x) for x, y in pairs):
      raise RuntimeError(
        f"gradient norms of pgax and {name} differ, so the work is not the same: {norms}"
      )


def _summary(
  shape: Shape, build: Mapping[str, Any], times: Mapping[str, Sequence[Mapping]]
) -> dict[str, Any]:
  """Medians of a library's times in seconds, and tokens per second."""
  result = dict(build["facts"])
  for call, prefix in _PREFIX.items():
    if call in times:
      wall = [row["wall"] for row in times[call]]
      median = statistics.median(wall)
      result[f"{prefix}_s"] = median
      result[f"{prefix}_cpu_s"] = statistics.median(row["cpu"] for row in times[call])
      warm_up = build["warm_up"][call]
      result[f"{prefix}_compile_s"] = max(0.0, sum(warm_up) - len(warm_up) * median)
      result[f"{prefix}_s_all"] = wall
  if "gen_s" in result:
    result["gen_tok_s"] = shape.new_tokens / result["gen_s"]
  if "step_s" in result:
    result["step_tok_s"] = (
      shape.rows * (shape.prompt_len + shape.gen_len) / result["step_s"]
    )
    result["grad_norms"] = [x for x in build["values"]["update"] if x is not None]
  return result


def _shares(
  shape: Shape, ours: Mapping[str, Any], times: Mapping[str, Sequence[Mapping]]
) -> dict[str, Any]:
  """The machine's limits, and the shares of them that update and decoding reach."""
  if not set(LIMITS) <= set(times):
    return {}
  work = ours["limit_work"]
  seconds = {x: statistics.median(row["wall"] for row in times[x]) for x in LIMITS}
  rates = {name: work[name] / seconds[name] for name in LIMITS}
  shares = {"machine": {"matmul_flops_s": rates["matmul"], "bytes_s": rates["copy"]}}
  if "step_s" in ours:
    shares["step_mfu"] = machine.update_flops(shape) / ours["step_s"] / rates["matmul"]
  if "first_token_s" in ours and shape.gen_len > 1:
    steps = shape.gen_len - 1
    decoding = max(ours["gen_s"] - ours["first_token_s"], 1e-9)
    shares["decode_tok_s"] = shape.rows * steps / decoding
    traffic = machine.step_bytes(shape, ours["params"]) * steps / decoding
    shares["decode_bandwidth_share"] = traffic / rates["copy"]
  return shares


def _ratios(
  ours: Mapping[str, Sequence[Mapping]], theirs: Mapping[str, Sequence[Mapping]]
) -> dict[str, dict[str, dict[str, float]]]:
  """Speed of pgax relative to the other library, by call and clock, over the rounds."""
  return {
    call: {
      clock: _spread([y[clock] / x[clock] for x, y in zip(ours[call], rows, strict=True)])
      for clock in ("wall", "cpu")
    }
    for call, rows in theirs.items()
    if call in ours
  }


def _spread(values: Sequence[float]) -> dict[str, float]:
  return {"median": statistics.median(values), "min": min(values), "max": max(values)}
