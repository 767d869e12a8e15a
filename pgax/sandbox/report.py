"""Reports what a sandbox isolates on this machine, by attempting each kind of access."""

import dataclasses
import functools
import json
import os
import socket
import tempfile
import time
from pathlib import Path

from pgax.sandbox.levels import best_level
from pgax.sandbox.process import Level, Limits, Process, SandboxError
from pgax.sandbox.system_calls import call_number

# Cheap to reach, and far below what the probe attempts.
_LIMITS = Limits(seconds=10.0, memory=256 * 2**20, processes=8, file_size=2**16)
_ATTEMPTS = 24
_PROBE = """
import ctypes, json, os, socket, time
libc = ctypes.CDLL(None)
targets = json.loads(input())

def succeeds(attempt):
  try:
    return bool(attempt())
  except (OSError, MemoryError):
    return False

def connect():
  with socket.create_connection(("127.0.0.1", targets["port"]), timeout=1):
    return True

def read():
  with open(targets["file"]) as file:
    return file.read() == targets["secret"]

def write():
  with open(targets["folder"] + "/written", "w"):
    return True

def environment():
  with open("/proc/%d/environ" % targets["process"], "rb") as file:
    return bool(file.read()) or bool(set(os.environ) - {"LC_CTYPE"})

def signal():
  os.kill(targets["process"], 0)
  return True

def memory():
  return len(bytearray(targets["memory"] + 1))

def size():
  with open("large", "wb") as file:
    file.write(bytes(targets["size"] + 1))
  return True

def processes():
  children = []
  try:
    for _ in range(targets["attempts"]):
      child = os.fork()
      if not child:
        time.sleep(5)
        os._exit(0)
      children.append(child)
  except OSError:
    pass
  for child in children:
    os.kill(child, 9)
    os.waitpid(child, 0)
  return len(children) >= targets["attempts"]

def child():
  child = os.fork()
  if not child:
    os._exit(0)
  os.waitpid(child, 0)
  return True

def shared_memory():
  number = libc.shmget(0, 4096, 0o1600)  # private and new
  return number >= 0 and libc.shmctl(number, 0, None) == 0

def keys():
  return libc.syscall(targets["keyctl"], 0, -3, 0) >= 0  # the session's

attempts = [connect, read, write, environment, signal, memory, size, processes]
attempts += [child, shared_memory, keys]
print(json.dumps({attempt.__name__: succeeds(attempt) for attempt in attempts}))
"""


class IsolationWarning(UserWarning):
  """Untrusted code runs with weaker isolation than this library offers elsewhere."""


@dataclasses.dataclass(frozen=True)
class Report:
  """The attempts of code in a sandbox that were blocked.

  Attributes:
    level: isolation level of the sandbox.
    network: whether it could not connect to a server on this machine.
    reading: whether it could not read a world-readable file of the user.
    writing: whether it could not write to a world-writable folder.
    environment: whether it could not read the environment of the process that started it.
    processes: whether it could not send signals to that process.
    memory: whether one process could not allocate more memory than the limit.
    file_size: whether it could not write more to a file than the limit.
    process_count: whether it could not start more processes than the limit.
    new_processes: whether it could not start any process. Then the limits on the memory and
      the processor time of one process are limits on everything that the code does.
    shared_memory: whether it could not create shared memory that outlives it (System V).
    keys: whether it could not use the keys that the kernel keeps for a session or a user.
  """

  level: Level
  network: bool
  reading: bool
  writing: bool
  environment: bool
  processes: bool
  memory: bool
  file_size: bool
  process_count: bool
  new_processes: bool
  shared_memory: bool
  keys: bool

  def __str__(self) -> str:
    """Returns a readable summary."""
    blocked = [name for name, value in vars(self).items() if value is True]
    allowed = [name for name, value in vars(self).items() if value is False]
    lines = [f"untrusted code is isolated by {self.level} on this machine"]
    lines.append(f"isolated, as tested: {', '.join(blocked) or 'nothing'}")
    lines.append(f"NOT isolated: {', '.join(allowed) or 'nothing that was tested'}")
    never = "never isolated: Python and system libraries are readable"
    if self.level == "limits":
      never += ", and the number of files in the sandbox's folder is not limited"
    lines.append(never)
    if self.new_processes:
      lines.append("code can start threads, but no processes")
    else:
      lines.append("limits on memory and processor time apply to each process separately")
      if self.level == "limits":
        lines.append("a process that leaves its session survives the sandbox")
    if not (self.processes and self.environment):  # or writes to its memory
      lines.append(
        "code that attacks the process that judges it could stop it or forge its verdict"
      )
    return "; ".join(lines)


@functools.cache
def isolation_report(level: Level | None = None) -> Report:
  """Tests what code in a sandbox can reach on this machine.

  The result is cached for the lifetime of the process.

  Args:
    level: isolation level to test; None for the strongest one that works.

  Returns:
    A `Report`.

  Raises:
    SandboxError: if the level does not work on this machine.
  """
  level = level or best_level()
  with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as s:
    os.chmod(folder, 0o777)
    file = Path(folder, "file")
    file.write_text("a secret")
    targets = {
      "port": s.getsockname()[1],
      "file": str(file),
      "secret": "a secret",
      "folder": folder,
      "process": os.getpid(),
      "memory": _LIMITS.memory,
      "size": _LIMITS.file_size,
      "attempts": _ATTEMPTS,
      "keyctl": call_number("keyctl"),
    }
    task = {"role": "script", "code": _PROBE}
    with Process(task, _LIMITS, level, stdin=json.dumps(targets)) as process:
      status = process.wait(time.monotonic() + _LIMITS.seconds)
      if status != 0:
        raise SandboxError(f"the probe of level {level!r} failed with status {status}")
      reached = json.loads(process.output())
  return Report(
    level=level,
    network=not reached["connect"],
    reading=not reached["read"],
    writing=not reached["write"],
    environment=not reached["environment"],
    processes=not reached["signal"],
    memory=not reached["memory"],
    file_size=not reached["size"],
    process_count=not reached["processes"],
    new_processes=not reached["child"],
    shared_memory=not reached["shared_memory"],
    keys=not reached["keys"],
  )
