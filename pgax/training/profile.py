"""Where the time of a step goes: its parts in the metrics, and traces for a profiler."""

import contextlib
import re
import time
from collections.abc import Iterator
from pathlib import Path

import jax

from pgax.errors import UserError

_FOLDER = "profile"


class StepTimes:
  """Measures steps, and what they wait for besides what their stage measures."""

  def __init__(self):
    self._start, self._parts = time.perf_counter(), {}

  @contextlib.contextmanager
  def part(self, name: str) -> Iterator[None]:
    """Measures a block as a part of the step."""
    start = time.perf_counter()
    try:
      yield
    finally:
      seconds = time.perf_counter() - start
      self._parts[name] = self._parts.get(name, 0.0) + seconds

  def lap(self) -> dict[str, float]:
    """Ends a step, and begins the next.

    Returns:
      `time/step`, the seconds since the last lap, and those of each part; what follows the
      last lap, such as a checkpoint, is of this step.
    """
    now = time.perf_counter()
    seconds = {"step": now - self._start, **self._parts}
    self._start, self._parts = now, {}
    return {f"time/{name}": value for name, value in seconds.items()}


class Profiler:
  """Writes a trace of some steps, which xprof, TensorBoard and Perfetto read.

  Args:
    steps: numbers of the first and the last step to trace; None for no trace.
    workdir: folder of the run; traces are in its folder `profile`.
  """

  def __init__(self, steps: tuple[int, int] | None, workdir: Path):
    self._steps, self._folder = steps or (0, 0), workdir / _FOLDER
    self._running = False

  def before(self, step: int) -> None:
    """Starts a trace if it is time."""
    first, last = self._steps
    if first <= step <= last and not self._running:
      jax.profiler.start_trace(self._folder)
      self._running = True

  def after(self, step: int) -> None:
    """Ends the trace if this was the last step of it."""
    if step >= self._steps[1]:
      self.close()

  def close(self) -> None:
    """Ends a trace that is running."""
    if self._running:
      self._running = False
      jax.profiler.stop_trace()


def parse_steps(text: str) -> tuple[int, int] | None:
  """Reads the steps to trace.

  Args:
    text: `3:5` for steps 3 to 5, or empty for none.

  Returns:
    Numbers of the first and the last step; None for no steps.

  Raises:
    UserError: if it is something else.
  """
  if not text:
    return None
  match = re.fullmatch(r"(\d+):(\d+)", text)
  steps = (int(match[1]), int(match[2])) if match else (0, 0)
  if not 1 <= steps[0] <= steps[1]:
    raise UserError(
      f"--profile_steps is {text!r}; it must be a first and a last step from 1 on, such as "
      "3:5"
    )
  return steps


def check_profile(traced: tuple[int, int] | None, steps: int) -> None:
  """Checks that a run has a step to trace.

  Args:
    traced: first and last step to trace; None for none.
    steps: number of steps of the run.

  Raises:
    UserError: if the first of them is beyond the last step.
  """
  if traced and traced[0] > steps:
    raise UserError(
      f"profile_steps begins with step {traced[0]}, and the run has {steps} steps: nothing "
      "would be traced"
    )
