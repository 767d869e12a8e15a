"""The pool's side of its processes: starts the server and talks to the workers."""

import contextlib
import json
import math
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from multiprocessing import connection
from typing import Any

from pgax.rewards.worker import ANSWER, FORK, MAX_MESSAGE, REAP, REQUEST
from pgax.types import RewardFn

_SERVER = "import sys; from pgax.rewards.worker import main; main(int(sys.argv[1]))"
_MAX_WAIT_SECONDS = 3600  # `poll` takes its timeout as a C integer of milliseconds


def start_server(function: RewardFn) -> tuple[subprocess.Popen, socket.socket]:
  """Starts the server that forks workers; see `worker`.

  Args:
    function: reward function.

  Returns:
    The server's process and a socket to it.

  Raises:
    ValueError: if the server cannot load the reward function.
  """

  def load_error(why: str) -> ValueError:
    return ValueError(
      f"workers can't load the reward function {function!r}: {why}. Define it at the top "
      "level of an importable module, or set workers to 0 to score without worker processes"
    )

  try:
    pickled = pickle.dumps(function)
  except Exception as error:
    raise load_error(f"{type(error).__name__}: {error}") from None
  ours, theirs = socket.socketpair()
  with theirs:
    server = subprocess.Popen(
      [sys.executable, "-c", _SERVER, str(theirs.fileno())],
      pass_fds=[theirs.fileno()],
      stdin=subprocess.DEVNULL,
      start_new_session=True,  # the run handles Ctrl-C in a terminal
      # The server imports pgax before it receives the entire path.
      env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
  try:
    with connection.Connection(os.dup(ours.fileno())) as setup:
      setup.send(sys.path)
      setup.send_bytes(pickled)
      why = setup.recv_bytes().decode(errors="replace")
  except (EOFError, OSError):
    why = "their server did not start; see its output above"
  if why:
    server.kill()
    server.wait()
    ours.close()
    raise load_error(why)
  return server, ours


def pickle_job(
  prompt: str, completion: str, ground_truth: str, metadata: Mapping[str, Any]
) -> bytes:
  """Pickles the arguments of a reward function."""
  return pickle.dumps((prompt, completion, ground_truth, dict(metadata)))


class Worker:
  """A worker process and the job that it runs.

  Args:
    control: socket to the server.
    memory: memory limit in bytes; 0 for none.

  Raises:
    RuntimeError: if the server has died.
  """

  def __init__(self, control: socket.socket, memory: int):
    ours, theirs = socket.socketpair()
    try:
      with theirs:
        socket.send_fds(control, [REQUEST.pack(FORK, memory)], [theirs.fileno()])
      answer = control.recv(ANSWER.size, socket.MSG_WAITALL)
    except OSError:  # the other end is closed
      answer = b""
    if len(answer) < ANSWER.size:
      ours.close()
      raise RuntimeError("the server of the pool's workers has died")
    (self.process,) = ANSWER.unpack(answer)
    self.socket = ours
    self.is_fresh = True  # until it has finished a job
    self.job, self.deadline, self.unsent = -1, math.inf, memoryview(b"")
    self._connection = connection.Connection(os.dup(ours.fileno()))
    self._control = control

  def start(self, job: int, message: bytes, deadline: float) -> None:
    """Starts a job.

    Args:
      job: index of the job.
      message: pickled arguments of the reward function.
      deadline: time of the monotonic clock at which the job times out, in seconds.
    """
    self.job, self.deadline, self.unsent = job, deadline, memoryview(message)
    self.send()

  def send(self) -> None:
    """Sends as much of the job as possible without waiting for the worker to read it."""
    try:
      while self.unsent:
        self.unsent = self.unsent[self.socket.send(self.unsent, socket.MSG_DONTWAIT) :]
    except BlockingIOError:
      pass
    except (BrokenPipeError, ConnectionResetError):
      # The worker has died, so reading from it finds the end of the connection.
      self.unsent = memoryview(b"")

  def has_message(self) -> bool:
    """Returns whether there is a message, or the end of the connection, to receive."""
    return self._connection.poll()

  def receive(self) -> dict[str, Any]:
    """Receives a message: a dictionary with `scores`, or with `detail` of an exception."""
    message = json.loads(self._connection.recv_bytes(MAX_MESSAGE))
    self.is_fresh = False
    return message

  def kill(self) -> None:
    """Kills the process and its session."""
    for kill in (os.killpg, os.kill):  # a process that was just forked has no session yet
      with contextlib.suppress(ProcessLookupError, PermissionError):
        kill(self.process, signal.SIGKILL)
    with contextlib.suppress(OSError):
      self._control.sendall(REQUEST.pack(REAP, self.process))
    self._connection.close()
    self.socket.close()


def wait_for_any(workers: Sequence[Worker]) -> None:
  """Waits until a worker writes, can read the rest of its job, or exceeds its deadline."""
  if not workers:
    return
  poll = select.poll()
  for worker in workers:
    events = select.POLLIN | (select.POLLOUT if worker.unsent else 0)
    poll.register(worker.socket, events)
  seconds = min(worker.deadline for worker in workers) - time.monotonic()
  poll.poll(math.ceil(1000 * min(max(seconds, 0), _MAX_WAIT_SECONDS)))
