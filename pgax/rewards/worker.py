"""The processes of a pool: a server that loads the reward function and forks workers.

Loading a reward function takes a second or more. Forking a process that has loaded it takes
milliseconds, so killed workers are replaced quickly. Forking the server is safe because it
uses neither threads nor devices; forking the process that trains would not be.

The server runs `python -c "from pgax.rewards.worker import main; main(FD)"`.
"""

import ctypes
import json
import os
import pickle
import resource
import signal
import socket
import struct
import sys
from multiprocessing.connection import Connection
from typing import Any

from pgax.types import RewardFn

# Requests from the pool to the server. FORK comes with the worker's end of a connection,
# and the answer is the worker's process id. REAP comes with the process id of a dead
# worker, and FORK with the worker's memory limit in bytes, or 0 for none.
REQUEST, ANSWER = struct.Struct("!cq"), struct.Struct("!q")
FORK, REAP = b"F", b"R"
# Longer messages of exceptions are truncated. A worker can then write its message at once,
# and the pool never waits for the rest of a message.
MAX_DETAIL, MAX_MESSAGE = 500, 8192


def main(control_fd: int) -> None:
  """Loads the reward function and forks workers until the pool closes its socket.

  Args:
    control_fd: file descriptor of a socket to the pool.
  """
  control = socket.socket(fileno=control_fd)
  with Connection(os.dup(control_fd)) as setup:
    # The path comes first, because the function is imported from it.
    sys.path[:] = setup.recv()
    try:
      function = pickle.loads(setup.recv_bytes())
    except Exception as error:
      setup.send_bytes(f"{type(error).__name__}: {error}".encode())
      return
    setup.send_bytes(b"")
  while True:
    request, fds, _, _ = socket.recv_fds(control, REQUEST.size, 1)
    if len(request) < REQUEST.size:
      return
    kind, value = REQUEST.unpack(request)
    if kind == REAP:
      os.waitpid(value, 0)
      continue
    process = os.fork()
    if process == 0:
      control.close()
      _work(function, fds[0], memory=value)
    os.close(fds[0])
    control.sendall(ANSWER.pack(process))


def _work(function: RewardFn, fd: int, memory: int) -> None:
  """Runs jobs in a worker process; never returns."""
  status, process = 1, os.getpid()
  try:
    os.setsid()  # so that processes which the function starts can be killed with it
    _die_with_parent()
    if memory:  # of data, because libraries reserve more addresses than they use
      resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    with Connection(fd) as connection, open(fd, "rb", closefd=False) as jobs:
      while True:
        try:
          job = pickle.load(jobs)
        except EOFError:
          status = 0
          break
        message = _answer(function, job, memory)
        if os.getpid() != process:  # a fork that returned; its answer would be a second one
          break
        connection.send_bytes(message)
  finally:
    os._exit(status)  # skips the exit handlers, which belong to the server


def _answer(function: RewardFn, job: tuple, memory: int) -> bytes:
  """Runs a job and returns its scores or its exception as JSON, which is safe to read."""
  try:
    scores = function(*job)
    result: dict[str, Any] = {"scores": {str(k): float(x) for k, x in scores.items()}}
    message = json.dumps(result).encode()
    if len(message) > MAX_MESSAGE:
      raise ValueError(f"the scores take {len(message)} bytes; the limit is {MAX_MESSAGE}")
  except MemoryError:
    limit = f"scoring.worker_memory allows {memory} bytes" if memory else "it ran out"
    message = json.dumps({"detail": f"MemoryError: {limit}"}).encode()
  except BaseException as error:  # including SystemExit, which must not end a worker
    detail = f"{type(error).__name__}: {error}"[:MAX_DETAIL]
    message = json.dumps({"detail": detail}).encode()
  finally:
    for timer in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF):
      signal.setitimer(timer, 0)  # one that is left would end the next job
  return message


def _die_with_parent() -> None:
  """Has a worker killed when the server ends, even if the worker hangs."""
  if sys.platform == "linux":
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL, 0, 0, 0)
