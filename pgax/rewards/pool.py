"""Runs reward functions: in this process, or in worker processes with a hard timeout."""

import dataclasses
import math
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from pgax.rewards.processes import Worker, pickle_job, start_server, wait_for_any
from pgax.rewards.worker import MAX_DETAIL
from pgax.types import RewardFn

# Why a completion could not be scored: its worker died, the function raised, its reward was
# not finite, or it took longer than the timeout.
REASONS = ("crash", "exception", "nan", "timeout")


class Job(NamedTuple):
  """Arguments of a reward function; see `RewardFn`."""

  prompt: str
  completion: str
  ground_truth: str
  metadata: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Outcome:
  """Outcome of a job.

  Attributes:
    scores: scores that the reward function returned, keyed by name; empty if it returned
      none.
    reason: why the completion could not be scored, one of `REASONS`; empty if it could.
    detail: message that explains the reason.
  """

  scores: Mapping[str, float]
  reason: str = ""
  detail: str = ""


class RewardRunner(Protocol):
  """Runs a reward function on jobs and returns their outcomes in the same order."""

  def __call__(self, jobs: Sequence[Job]) -> list[Outcome]: ...


def _outcome(scores: Mapping[str, float]) -> Outcome:
  """Returns the outcome of a call that returned; a non-finite reward is not a score."""
  reward = scores.get("reward", 0.0)  # the caller reports a missing reward
  if math.isfinite(reward):
    return Outcome(scores)
  return Outcome(scores, "nan", f"the reward is {reward}")


@dataclasses.dataclass(frozen=True)
class InProcess:
  """Scores jobs one by one in the caller's process, without a timeout.

  Exceptions of the reward function propagate to the caller. Several threads can call it,
  one at a time.

  Attributes:
    function: reward function.
  """

  function: RewardFn
  _lock: Any = dataclasses.field(
    default_factory=threading.Lock, init=False, repr=False, compare=False
  )

  def __call__(self, jobs: Sequence[Job]) -> list[Outcome]:
    """Scores jobs."""
    with self._lock:
      results = [self.function(*job) for job in jobs]
    return [_outcome({str(k): float(x) for k, x in scores.items()}) for scores in results]


class Pool:
  """Scores jobs in worker processes, so that a failing job does not affect the others.

  If a worker dies, raises or exceeds the timeout, the outcome of its job says so and the
  worker is replaced. A worker may also die from what an earlier job left in it, such as a
  thread. Therefore a job whose worker dies runs once more, in a new worker, unless its
  worker was new: then the job itself is the reason.

  The pool kills workers by SIGKILL and sets no alarm. Therefore it works from any thread,
  and it stops code that never returns to the interpreter. Processes that a reward function
  starts die with its worker unless they leave its session.

  Use the pool in a `with` statement, or call `close`.

  Args:
    function: reward function, which must be importable by name from a module.
    workers: number of worker processes.
    timeout_seconds: time limit of each job, in seconds.
    memory: memory limit of each worker, in bytes; 0 for none. A job that exceeds it ends in
      a MemoryError, or with its worker.

  Raises:
    ValueError: if an argument is out of range, or the workers cannot load the function.
  """

  def __init__(
    self, function: RewardFn, workers: int, timeout_seconds: float, memory: int = 0
  ):
    if workers < 1:
      raise ValueError(f"workers is {workers}; a pool needs at least 1")
    if not 0 < timeout_seconds < math.inf:
      raise ValueError(
        f"timeout_seconds is {timeout_seconds}; it must be positive and finite"
      )
    self.timeout_seconds, self._memory = timeout_seconds, memory
    self._lock = threading.RLock()  # calls of several threads take turns
    self._server, self._control = start_server(function)
    self._workers: list[Worker] = []
    try:
      self._workers += [Worker(self._control, memory) for _ in range(workers)]
    except BaseException:
      self.close()
      raise

  def __call__(self, jobs: Sequence[Job]) -> list[Outcome]:
    """Scores jobs, as many at a time as there are workers.

    Args:
      jobs: jobs to score.

    Returns:
      An `Outcome` for each job, in the same order.

    Raises:
      ValueError: if the pool is closed. An interrupted call closes it too.
    """
    with self._lock:
      if not self._workers:
        raise ValueError("the pool is closed, or a call was interrupted; open another one")
      try:
        return self._run(jobs)
      except BaseException:
        # A late response must never be taken for that of a later job.
        self.close()
        raise

  def _run(self, jobs: Sequence[Job]) -> list[Outcome]:
    outcomes: list[Outcome | None] = [None] * len(jobs)
    waiting, idle, busy = deque(range(len(jobs))), list(self._workers), []
    while waiting or busy:
      while waiting and idle:
        index = waiting.popleft()
        try:
          message = pickle_job(*jobs[index])
        except Exception as error:  # the metadata may be anything
          detail = f"the job can't be sent to a worker: {type(error).__name__}: {error}"
          outcomes[index] = Outcome({}, "exception", detail[:MAX_DETAIL])
          continue
        worker = idle.pop()
        if worker.has_message():  # an idle worker says something only if it died
          worker = self._replace(worker)
        busy.append(worker)
        worker.start(index, message, time.monotonic() + self.timeout_seconds)
      wait_for_any(busy)
      for worker in list(busy):
        worker.send()
        outcome = self._poll(worker)
        if outcome is None:
          continue
        index, was_fresh = worker.job, worker.is_fresh
        busy.remove(worker)
        if outcome.reason in ("crash", "timeout"):
          worker = self._replace(worker)
        if outcome.reason == "crash" and not was_fresh:
          busy.append(worker)
          message = pickle_job(*jobs[index])
          worker.start(index, message, time.monotonic() + self.timeout_seconds)
        else:
          outcomes[index] = outcome
          idle.append(worker)
    return outcomes

  def _poll(self, worker: Worker) -> Outcome | None:
    """Returns the outcome of a worker's job; None while the job is running."""
    try:
      if worker.has_message():
        message = worker.receive()
        if "detail" in message:
          return Outcome({}, "exception", message["detail"])
        return _outcome(message["scores"])
    except (EOFError, OSError, ValueError):
      return Outcome({}, "crash", "the worker process died")
    if time.monotonic() < worker.deadline:
      return None
    return Outcome({}, "timeout", f"it took longer than {self.timeout_seconds:g} s")

  def _replace(self, worker: Worker) -> Worker:
    worker.kill()
    position = self._workers.index(worker)
    self._workers[position] = Worker(self._control, self._memory)
    return self._workers[position]

  def close(self) -> None:
    """Kills all processes, after waiting for calls of other threads."""
    with self._lock:
      for worker in self._workers:
        worker.kill()
      self._workers = []
      self._control.close()
      self._server.kill()
      self._server.wait()

  def __enter__(self) -> "Pool":
    return self

  def __exit__(self, *_: object) -> None:
    self.close()
