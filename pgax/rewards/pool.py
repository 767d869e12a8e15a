"""Reward functions in processes of their own, killed at a hard deadline."""

import contextlib
import dataclasses
import json
import math
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from multiprocessing import connection
from typing import Any, NamedTuple, Protocol

from pgax.rewards.worker import ANSWER, FORK, MAX_DETAIL, MAX_MESSAGE, REAP, REQUEST
from pgax.types import RewardFn

# Why a completion could not be scored: its worker died, the function raised, its reward
# was not finite, or it took longer than the deadline.
REASONS = ("crash", "exception", "nan", "timeout")
_SERVER = "import sys; from pgax.rewards.worker import main; main(int(sys.argv[1]))"


class Job(NamedTuple):
  """What a reward function is given; see `RewardFn`."""

  prompt: str
  completion: str
  ground_truth: str
  metadata: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Outcome:
  """What came of a job.

  Attributes:
    scores: by name, as the reward function told them; empty where it told none.
    reason: why it could not be scored, one of `REASONS`; empty where it could.
    detail: more about that, for people.
  """

  scores: Mapping[str, float]
  reason: str = ""
  detail: str = ""


class Scorer(Protocol):
  """Jobs to their outcomes, in the same order."""

  def __call__(self, jobs: Sequence[Job]) -> list[Outcome]: ...


def scored(scores: Mapping[str, float]) -> Outcome:
  """The outcome of a function that returned; a reward that is not finite is no score."""
  value = scores.get("reward", 0.0)  # that it is missing is for the caller to say
  if math.isfinite(value):
    return Outcome(scores)
  return Outcome(scores, "nan", f"the reward is {value}")


@dataclasses.dataclass(frozen=True)
class InProcess:
  """Scores in the caller's process, one job after the other, without a deadline.

  What the function raises is raised; what it hangs on hangs.

  Attributes:
    function: the reward function.
  """

  function: RewardFn

  def __call__(self, jobs: Sequence[Job]) -> list[Outcome]:
    """Scores jobs."""
    told = (self.function(*job) for job in jobs)
    return [scored({str(k): float(x) for k, x in scores.items()}) for scores in told]


class Pool:
  """Scores in worker processes: whatever happens to one job, the others get their score.

  A job whose worker dies, raises or is over the deadline has an outcome that says so, and
  the worker is replaced. No signal but SIGKILL is used and no alarm is set, so that it
  works from any thread and stops code that never returns to the interpreter. Processes
  that a function started die with its worker, if they stayed in its session.

  Use it in a `with` statement, or call `close`.

  Args:
    function: the reward function; it has to be found by its name in a module.
    workers: number of processes.
    deadline: seconds that a job may take.

  Raises:
    ValueError: if an argument is out of its range, or the workers can't load the function.
  """

  def __init__(self, function: RewardFn, workers: int, deadline: float):
    if workers < 1:
      raise ValueError(f"workers is {workers}; a pool needs at least 1")
    if not 0 < deadline < math.inf:
      raise ValueError(f"deadline is {deadline}; it must be a positive number of seconds")
    self.deadline = deadline
    self._lock = threading.RLock()  # one call at a time, whatever thread it is of
    self._server, self._control = _start_server(function)
    self._workers: list[_Worker] = []
    try:
      self._workers += [_Worker(self._control) for _ in range(workers)]
    except BaseException:
      self.close()
      raise

  def __call__(self, jobs: Sequence[Job]) -> list[Outcome]:
    """Scores jobs, as many at a time as there are workers.

    Args:
      jobs: what to score.

    Returns:
      An `Outcome` for each, in the same order.

    Raises:
      ValueError: if the pool is closed, as it is too when a call was interrupted.
    """
    with self._lock:
      if not self._workers:
        raise ValueError("the pool is closed, or a call was interrupted; open another one")
      try:
        return self._scored(jobs)
      except BaseException:
        # Wherever that was, no answer must be taken for that of a later job.
        self.close()
        raise

  def _scored(self, jobs: Sequence[Job]) -> list[Outcome]:
    outcomes: list[Outcome | None] = [None] * len(jobs)
    waiting, idle, busy = deque(range(len(jobs))), list(self._workers), []
    while waiting or busy:
      while waiting and idle:
        index = waiting.popleft()
        try:
          message = _pickled(jobs[index])
        except Exception as error:  # its metadata may be anything
          detail = f"it can't be sent to a worker: {type(error).__name__}: {error}"
          outcomes[index] = Outcome({}, "exception", detail[:MAX_DETAIL])
          continue
        worker = idle.pop()
        if worker.connection.poll():  # it says something unasked: that it is dead
          worker = self._replace(worker)
        busy.append(worker)
        worker.give(index, message, time.monotonic() + self.deadline)
      _wait(busy)
      for worker in list(busy):
        worker.send()
        outcome = worker.outcome(self.deadline)
        if outcome is None:
          continue
        outcomes[worker.job] = outcome
        busy.remove(worker)
        if outcome.reason in ("crash", "timeout"):
          worker = self._replace(worker)
        idle.append(worker)
    return outcomes

  def _replace(self, worker: "_Worker") -> "_Worker":
    worker.kill()
    place = self._workers.index(worker)
    self._workers[place] = _Worker(self._control)
    return self._workers[place]

  def close(self) -> None:
    """Ends all processes, after a call of another thread."""
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


def _start_server(function: RewardFn) -> tuple[subprocess.Popen, socket.socket]:
  def refused(why: str) -> ValueError:
    return ValueError(
      f"workers can't load the reward function {function!r}: {why}. Define it at the top "
      "of a module that can be imported, or set workers to 0 to score in the process itself"
    )

  try:
    pickled = pickle.dumps(function)
  except Exception as error:
    raise refused(f"{type(error).__name__}: {error}") from None
  ours, theirs = socket.socketpair()
  with theirs:
    server = subprocess.Popen(
      [sys.executable, "-c", _SERVER, str(theirs.fileno())],
      pass_fds=[theirs.fileno()],
      stdin=subprocess.DEVNULL,
      start_new_session=True,  # Ctrl-C in a terminal is for the run to handle
      # pgax itself must be found before the rest of the path is told.
      env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
  try:
    with connection.Connection(os.dup(ours.fileno())) as setup:
      setup.send(sys.path)
      setup.send_bytes(pickled)
      why = setup.recv_bytes().decode(errors="replace")
  except (EOFError, OSError):
    why = "their server did not start; what it said is above"
  if why:
    server.kill()
    server.wait()
    ours.close()
    raise refused(why)
  return server, ours


def _pickled(job: Job) -> bytes:
  return pickle.dumps((job.prompt, job.completion, job.ground_truth, dict(job.metadata)))


def _wait(busy: Sequence["_Worker"]) -> None:
  """Waits until a worker says something, reads something, or is over its deadline."""
  if not busy:
    return
  poll = select.poll()
  for worker in busy:
    poll.register(worker.socket, select.POLLIN | (select.POLLOUT if worker.unsent else 0))
  soonest = min(worker.due for worker in busy) - time.monotonic()
  poll.poll(math.ceil(1000 * min(max(soonest, 0), 3600)))  # it takes no more than weeks


class _Worker:
  """One worker process, and the job that it has."""

  def __init__(self, control: socket.socket):
    ours, theirs = socket.socketpair()
    try:
      with theirs:
        socket.send_fds(control, [REQUEST.pack(FORK, 0)], [theirs.fileno()])
      answer = control.recv(ANSWER.size, socket.MSG_WAITALL)
    except OSError:  # nobody reads
      answer = b""
    if len(answer) < ANSWER.size:
      ours.close()
      raise RuntimeError("the server of the pool's workers has died")
    (self.process,) = ANSWER.unpack(answer)
    self.socket = ours
    self.connection = connection.Connection(os.dup(ours.fileno()))
    self.job, self.due, self.unsent = -1, math.inf, memoryview(b"")
    self._control = control

  def give(self, index: int, message: bytes, due: float) -> None:
    """Gives it a job; `due` is when the job must be done, on the monotonic clock."""
    self.job, self.due, self.unsent = index, due, memoryview(message)
    self.send()

  def send(self) -> None:
    """Sends what it takes of its job without waiting: it may never read the rest."""
    try:
      while self.unsent:
        self.unsent = self.unsent[self.socket.send(self.unsent, socket.MSG_DONTWAIT) :]
    except BlockingIOError:
      pass
    except (BrokenPipeError, ConnectionResetError):
      # It has died: its silence is found to be the end of the connection.
      self.unsent = memoryview(b"")

  def outcome(self, deadline: float) -> Outcome | None:
    """What came of its job; None while nothing did."""
    try:
      if self.connection.poll():
        told = json.loads(self.connection.recv_bytes(MAX_MESSAGE))
        if "detail" in told:
          return Outcome({}, "exception", told["detail"])
        return scored(told["scores"])
    except (EOFError, OSError, ValueError):
      return Outcome({}, "crash", "the worker process died")
    if time.monotonic() < self.due:
      return None
    return Outcome({}, "timeout", f"it took longer than the deadline of {deadline:g} s")

  def kill(self) -> None:
    """Ends it, and what it started in its session."""
    for kill in (os.killpg, os.kill):  # it may have been forked just now, with no session
      with contextlib.suppress(ProcessLookupError, PermissionError):
        kill(self.process, signal.SIGKILL)
    with contextlib.suppress(OSError):
      self._control.sendall(REQUEST.pack(REAP, self.process))
    self.connection.close()
    self.socket.close()
