"""Runs a program for many settings and seeds at once, in chunks of one shape."""

import contextlib
import dataclasses
import functools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from tqdm import tqdm

from pgax.study.files import load_chunk, open_folder, save_chunk
from pgax.study.program import Metrics, Numbers, Program
from pgax.types import Array, PyTree

_CALLS = 20  # about as many reports of progress in a chunk
# Prefix of metrics of evaluations, and the name of the seconds of a run.
EVALUATION, SECONDS = "eval/", "time/run"


class Chunk(NamedTuple):
  """Runs that are computed at once.

  Attributes:
    runs: index of the setting and seed of each run, the last one repeated as padding.
    count: number of runs without the padding.
  """

  runs: list[tuple[int, int]]
  count: int


def run_program(
  program: Program,
  settings: Sequence[Numbers],
  seeds: Sequence[int],
  *,
  at_once: int = 8,
  folder: Path | None = None,
  record: Mapping[str, Any] | None = None,
  name: str = "study",
  progress: bool = True,
) -> dict[str, np.ndarray]:
  """Runs a program for every setting and every seed.

  Args:
    program: the program.
    settings: numbers of each setting; all have the same paths.
    seeds: seeds of each setting.
    at_once: number of runs that are computed at once, over all devices. More use the
      devices better and need more memory.
    folder: folder of the results of finished chunks, which are not computed again; None
      keeps nothing.
    record: JSON values that identify the study; a folder with another record, other
      settings or another number of steps is rejected.
    name: name in the progress bar.
    progress: whether to show one.

  Returns:
    Arrays `[settings, seeds, steps]` of each metric of a step, `[settings, seeds,
    evaluations]` of each metric of an evaluation, whose names begin with `eval/`, and
    `time/run`, `[settings, seeds]`, seconds of a run without its start and compilation:
    those of its chunk, divided by the number of runs in it.

  Raises:
    UserError: if the folder is that of another study, is in use, or can't be written.
  """
  call: list[_Call] = []  # compiled once it is needed

  def compute(chunk: Chunk, report: Callable[[int], None]) -> dict[str, np.ndarray]:
    if not call:
      call.append(_compiled(program, settings, len(chunk.runs)))
    numbers = _stack([settings[x] for x, _ in chunk.runs])
    seeds = [seed for _, seed in chunk.runs]
    metrics = _run_chunk(program, call[0], numbers, seeds, report)
    return {key: x[: chunk.count] for key, x in program.finish(metrics).items()}

  devices = len(jax.devices())
  at_once = -(-min(at_once, len(settings) * len(seeds)) // devices) * devices
  options = {"folder": folder, "record": record, "name": name, "progress": progress}
  return run_chunks(compute, settings, seeds, program.steps, at_once, **options)


def run_chunks(
  compute: Callable[[Chunk, Callable[[int], None]], dict[str, np.ndarray]],
  settings: Sequence[Numbers],
  seeds: Sequence[int],
  steps: int,
  at_once: int,
  *,
  folder: Path | None = None,
  record: Mapping[str, Any] | None = None,
  name: str = "study",
  progress: bool = True,
) -> dict[str, np.ndarray]:
  """Computes the runs of all settings and seeds that a folder does not hold, in chunks.

  Args:
    compute: returns arrays `[runs, ...]` of each metric of a chunk, and calls its second
      argument with numbers of steps of a run that are done.
    settings: numbers of each setting.
    seeds: seeds of each setting.
    steps: number of steps of a run.
    at_once: number of runs in a chunk.
    folder: see `run_program` for this and all other arguments, and the results.
    record: JSON values that identify the study.
    name: name in the progress bar.
    progress: whether to show one.

  Returns:
    Arrays `[settings, seeds, ...]` of each metric.
  """
  runs = [(x, seed) for seed in seeds for x in range(len(settings))]
  identity = {"settings": list(map(dict, settings)), "steps": steps}
  parts = []
  with contextlib.ExitStack() as stack:
    if folder is not None:
      stack.enter_context(open_folder(folder, {**(record or {}), **identity}))
    total = len(runs) * steps
    bar = stack.enter_context(tqdm(total=total, disable=not progress, desc=name))
    for start in range(0, len(runs), at_once):
      count = min(at_once, len(runs) - start)
      padded = [runs[min(i, len(runs) - 1)] for i in range(start, start + at_once)]
      file = None if folder is None else folder / f"runs_{start}_to_{start + count - 1}"
      metrics = None if file is None else load_chunk(file)
      if metrics is None:
        report = functools.partial(_advance, bar, count)
        metrics = compute(Chunk(padded, count), report)
        if file is not None:
          save_chunk(file, metrics)
      else:
        _advance(bar, count, steps)
      parts.append(metrics)
  shape = (len(seeds), len(settings))
  joined = {key: np.concatenate([x[key] for x in parts]) for key in parts[0]}
  return {
    key: np.swapaxes(x.reshape(*shape, *x.shape[1:]), 0, 1) for key, x in joined.items()
  }


def _advance(bar: tqdm, runs: int, steps: int) -> None:
  bar.update(runs * steps)


def _stack(numbers: Sequence[Numbers]) -> dict[str, np.ndarray]:
  return {
    key: np.array([x[key] for x in numbers], np.float32) for key in sorted(numbers[0])
  }


@dataclasses.dataclass(frozen=True)
class _Call:
  """The compiled functions of a program, mapped over runs."""

  steps: Callable
  evaluate: Callable | None


def _compiled(program: Program, settings: Sequence[Numbers], at_once: int) -> _Call:
  """Jits a program, mapped over its runs; numbers that do not differ are not mapped."""
  mapped = {x for x in settings[0] if len({setting[x] for setting in settings}) > 1}
  axes = {x: 0 if x in mapped else None for x in sorted(settings[0])}

  def common(numbers: Numbers) -> Numbers:
    return {key: x if axes[key] == 0 else x[0] for key, x in numbers.items()}

  def steps(
    numbers: Numbers, state: PyTree, data: PyTree, indices: Array, seed: Array
  ) -> tuple[PyTree, Metrics, Metrics]:
    """Runs `indices` `[segments, k]`, with an evaluation after each segment."""

    def step(state: PyTree, x: tuple[PyTree, Array]) -> tuple[PyTree, Metrics]:
      return program.step(numbers, state, *x)

    def segment(state: PyTree, x: tuple[PyTree, Array]) -> tuple[PyTree, tuple]:
      state, metrics = jax.lax.scan(step, state, x)
      evaluation = program.evaluate(numbers, state, seed) if program.evaluate else {}
      return state, (metrics, evaluation)

    state, (metrics, evaluations) = jax.lax.scan(segment, state, (data, indices))
    flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), metrics)
    return state, flat, evaluations

  mapped_steps = _map(steps, (axes, 0, 0, None, 0), at_once)
  jitted = jax.jit(lambda n, *x: mapped_steps(common(n), *x), donate_argnums=1)
  evaluate = None
  if program.evaluate:
    mapped_evaluation = _map(program.evaluate, (axes, 0, 0), at_once)
    evaluate = jax.jit(lambda n, *x: mapped_evaluation(common(n), *x))
  return _Call(_Compiler(jitted), evaluate)


def _map(function: Callable, axes: tuple, at_once: int) -> Callable:
  """Maps a function over runs; a single run is computed as if there were no axis."""
  if at_once > 1:
    return jax.vmap(function, in_axes=axes)

  def one(*arguments: PyTree) -> PyTree:
    first = [_first(*pair) for pair in zip(axes, arguments, strict=True)]
    return jax.tree.map(lambda x: x[None], function(*first))

  return one


def _first(axis: Any, argument: PyTree) -> PyTree:
  """The argument of the first run, by the axes of `jax.vmap`."""
  if isinstance(axis, dict):
    return {key: _first(axis[key], x) for key, x in argument.items()}
  return argument if axis is None else jax.tree.map(lambda x: x[0], argument)


class _Compiler:
  """Compiles a jitted function ahead of its calls, whose time then has no compilation."""

  def __init__(self, jitted: Callable):
    self._jitted, self._programs = jitted, {}

  def __call__(self, *arguments: PyTree) -> Callable:
    leaves, tree = jax.tree.flatten(arguments)
    key = (tree, tuple((x.shape, x.dtype, x.sharding) for x in leaves))
    if key not in self._programs:
      self._programs[key] = self._jitted.lower(*arguments).compile()
    return self._programs[key]


def _run_chunk(
  program: Program,
  call: _Call,
  numbers: Mapping[str, np.ndarray],
  seeds: Sequence[int],
  report: Callable[[int], None],
) -> dict[str, np.ndarray]:
  """Runs a chunk; returns arrays `[R, ...]`, the repetitions included."""
  place = _sharding(len(seeds))
  state, seconds = place(program.start(numbers, seeds)), 0.0
  numbers, seed_array = place(dict(numbers)), place(np.asarray(seeds, np.int32))
  data = _by_seed(program.data, seeds)
  length = program.eval_every if program.evaluate else 1
  segments = program.steps // length
  per_call = _per_call(segments)
  parts, evaluations = [], []
  if program.evaluate:
    first = call.evaluate(numbers, state, seed_array)
    evaluations.append(jax.tree.map(lambda x: np.asarray(x)[:, None], first))
  for start in range(0, segments, per_call):
    count = min(per_call, segments - start)
    steps = np.arange(start * length, (start + count) * length).reshape(count, length)
    part = jax.tree.map(lambda x, steps=steps: x[:, steps], data)
    arguments = (numbers, state, place(part), jnp.asarray(steps, jnp.int32), seed_array)
    compiled = call.steps(*arguments)
    started = time.perf_counter()
    state, *outputs = compiled(*arguments)
    metrics, evaluation = jax.device_get(outputs)
    seconds += time.perf_counter() - started
    parts.append(metrics)
    evaluations.append(evaluation)
    report(steps.size)
  joined = _join(parts)
  if program.evaluate:
    joined |= {f"{EVALUATION}{key}": x for key, x in _join(evaluations).items()}
  return joined | {SECONDS: np.full(len(seeds), seconds / len(seeds))}


def _join(parts: Sequence[PyTree]) -> PyTree:
  return jax.tree.map(lambda *x: np.concatenate(x, axis=1), *parts)


def _by_seed(data: Callable[[Sequence[int]], PyTree], seeds: Sequence[int]) -> PyTree:
  """The data of runs, made once for each seed."""
  unique, index = np.unique(seeds, return_inverse=True)
  return jax.tree.map(lambda x: x[index], data(unique.tolist()))


def _per_call(segments: int) -> int:
  """Number of segments in a call: a divisor of all if one is near, for a single shape."""
  wanted = -(-segments // _CALLS)
  divisors = [x for x in range(1, wanted + 1) if segments % x == 0]
  return divisors[-1] if 2 * divisors[-1] > wanted else wanted


def _sharding(runs: int) -> Callable[[PyTree], PyTree]:
  """Returns a function that puts arrays `[R, ...]` on the devices, sharded over runs."""
  devices = math.gcd(runs, len(jax.devices()))
  mesh = Mesh(np.array(jax.devices()[:devices]), ("runs",))
  sharding = NamedSharding(mesh, PartitionSpec("runs"))
  return lambda tree: jax.device_put(tree, sharding)
