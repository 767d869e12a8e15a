"""A process with one library, which builds work, waits for its turn and times itself.

Requests and answers are lines of JSON. Only the standard library is imported, as in
`shape`.
"""

import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from experiments.benchmarks.shape import Shape, peak_memory

# A function that returns when its work is done, and may return a number such as a norm.
Call = Callable[[], float | None]


def process_memory() -> tuple[int, str]:
  """Returns the peak memory of this process in bytes, and its name."""
  return peak_memory(), "resident memory of the process"


class Work(NamedTuple):
  """The operations of a library for a shape.

  Attributes:
    calls: functions to time, by name.
    facts: numbers and texts about the model and the library.
    limits: functions that measure the machine, by name; their memory is not counted.
    memory: returns the peak memory so far in bytes, and which memory that is.
    warm_up: number of calls that are not timed; the last one must not compile.
  """

  calls: Mapping[str, Call]
  facts: Mapping[str, Any]
  limits: Mapping[str, Call] = {}
  memory: Callable[[], tuple[int, str]] = process_memory
  warm_up: int = 2


# Builds the calls of some names for a shape. The folder holds the weights and the batch.
Build = Callable[[Shape, tuple[str, ...], Path | None], Work]


class Worker:
  """Builds work and times its calls, in this process."""

  def __init__(self, build: Build):
    self._build, self._calls = build, {}

  def build(self, shape: Shape, names: tuple[str, ...], folder: Path | None) -> dict:
    """Builds the work of a shape and makes the calls that are not timed.

    Args:
      shape: sizes of model and batch.
      names: names of the calls to build.
      folder: folder with the weights and the batch that all libraries use; None without
        other libraries.

    Returns:
      `facts`, with `peak_bytes`; by name `warm_up` (seconds of each of these calls) and
      `values` (what they returned); and the `names` of all calls.
    """
    self._calls = {}  # frees the work before
    work = self._build(shape, names, folder)
    self._calls = dict(work.calls)
    calls = {name: [self.call(name) for _ in range(work.warm_up)] for name in work.calls}
    warm_up = {name: [row["wall"] for row in rows] for name, rows in calls.items()}
    values = {name: [row["value"] for row in rows] for name, rows in calls.items()}
    facts = dict(work.facts)
    facts["peak_bytes"], facts["peak_bytes_of"] = work.memory()
    self._calls |= work.limits
    for name in work.limits:
      self.call(name)
    return {
      "facts": facts,
      "warm_up": warm_up,
      "values": values,
      "names": list(self._calls),
    }

  def call(self, name: str) -> dict[str, float | None]:
    """Times a call: `wall` and `cpu` seconds of all threads, and the `value` it returns."""
    wall, cpu = time.perf_counter(), time.process_time()
    value = self._calls[name]()
    return {
      "wall": time.perf_counter() - wall,
      "cpu": time.process_time() - cpu,
      "value": value,
    }


def serve(build: Build) -> None:
  """Answers the requests on standard input until it ends.

  What libraries print goes to standard error.

  Args:
    build: builds the work of a library.
  """
  answers = os.fdopen(os.dup(1), "w")
  os.dup2(2, 1)
  worker = Worker(build)
  for line in sys.stdin:
    try:
      answer = {"done": _answer(worker, json.loads(line))}
    except Exception as error:  # reported by the process that asked
      traceback.print_exc()
      answer = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(answer), file=answers, flush=True)


def _answer(worker: Worker, request: dict[str, Any]) -> dict:
  if "call" in request:
    return worker.call(request["call"])
  folder = Path(request["folder"])
  return worker.build(Shape(**request["shape"]), tuple(request["names"]), folder)
