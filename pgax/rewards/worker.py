"""The processes of a pool: a server that loads the reward function, and forks workers.

Loading a reward function takes a second or more; a fork of a process that has loaded it
takes milliseconds, so a worker that was killed is soon replaced. The server uses neither
threads nor devices, which is what makes it safe to fork; the process that trains is not.

The program of the server is `python -c "from pgax.rewards.worker import main; main(FD)"`.
"""

import ctypes
import json
import os
import pickle
import signal
import socket
import struct
import sys
from multiprocessing.connection import Connection
from typing import Any

from pgax.types import RewardFn

# What the pool asks of the server: FORK comes with the worker's end of a connection and is
# answered by the process id, REAP comes with the id of a worker that is dead.
REQUEST, ANSWER = struct.Struct("!cq"), struct.Struct("!q")
FORK, REAP = b"F", b"R"
# Longer messages of exceptions are cut; what a worker says is then written at one go, and
# the pool never waits for the rest of it.
MAX_DETAIL, MAX_MESSAGE = 500, 8192


def main(control_fd: int) -> None:
  """Serves forks until the pool is gone.

  Args:
    control_fd: file descriptor of a socket to the pool.
  """
  control = socket.socket(fileno=control_fd)
  with Connection(os.dup(control_fd)) as setup:
    # The path first: without it the function can't be found.
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
    kind, process = REQUEST.unpack(request)
    if kind == REAP:
      os.waitpid(process, 0)
      continue
    process = os.fork()
    if process == 0:
      control.close()
      _work(function, fds[0])
    os.close(fds[0])
    control.sendall(ANSWER.pack(process))


def _work(function: RewardFn, fd: int) -> None:
  """A worker: answers job after job; never returns."""
  status = 1
  try:
    os.setsid()  # what the function starts can be killed with it
    _die_with_parent()
    with Connection(fd) as connection, open(fd, "rb", closefd=False) as jobs:
      while True:
        try:
          job = pickle.load(jobs)
        except EOFError:
          status = 0
          break
        connection.send_bytes(_answer(function, job))
  finally:
    os._exit(status)  # what was registered to be done at exit is the server's to do


def _answer(function: RewardFn, job: tuple) -> bytes:
  """What to tell of one job: JSON, for the pool reads nothing but data."""
  try:
    scores = function(*job)
    told: dict[str, Any] = {"scores": {str(k): float(x) for k, x in scores.items()}}
    message = json.dumps(told).encode()
    if len(message) > MAX_MESSAGE:
      raise ValueError(f"its scores take {len(message)} bytes; allowed are {MAX_MESSAGE}")
  except BaseException as error:  # SystemExit too: it is no way to end a worker
    detail = f"{type(error).__name__}: {error}"[:MAX_DETAIL]
    message = json.dumps({"detail": detail}).encode()
  return message


def _die_with_parent() -> None:
  """A worker that hangs does not survive the server, which ends with the pool."""
  if sys.platform == "linux":
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL, 0, 0, 0)
