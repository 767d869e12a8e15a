"""What a sandbox isolates on this machine: tried out, not assumed."""

import dataclasses
import functools
import json
import os
import socket
import tempfile
import time
from pathlib import Path

from pgax.sandbox.process import Level, Limits, Process, SandboxError, best_level

# Small enough to be reached at no cost, and far below what the attempts go to.
_LIMITS = Limits(seconds=10.0, memory=256 * 2**20, processes=8, file_size=2**16)
_ATTEMPTS = 24
_PROBE = """
import json, os, socket, time
known = json.loads(input())

def tried(attempt):
  try:
    return bool(attempt())
  except (OSError, MemoryError):
    return False

def connect():
  with socket.create_connection(("127.0.0.1", known["port"]), timeout=1):
    return True

def read():
  with open(known["file"]) as file:
    return file.read() == known["secret"]

def write():
  with open(known["folder"] + "/written", "w"):
    return True

def environment():
  with open("/proc/%d/environ" % known["process"], "rb") as file:
    return bool(file.read()) or bool(set(os.environ) - {"LC_CTYPE"})

def signal():
  os.kill(known["process"], 0)
  return True

def memory():
  return len(bytearray(known["memory"] + 1))

def size():
  with open("large", "wb") as file:
    file.write(bytes(known["size"] + 1))
  return True

def processes():
  children = []
  try:
    for _ in range(known["attempts"]):
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
  return len(children) >= known["attempts"]

attempts = [connect, read, write, environment, signal, memory, size, processes]
print(json.dumps({attempt.__name__: tried(attempt) for attempt in attempts}))
"""


@dataclasses.dataclass(frozen=True)
class Report:
  """What code in a sandbox was kept from, when it tried.

  Attributes:
    level: how it was isolated.
    network: connecting to a server on this machine.
    reading: reading a file of the user's that others may read.
    writing: writing to a folder that others may write to.
    environment: reading the environment of the process that started it.
    processes: sending signals to that process.
    memory: taking more memory than the limit, in one process.
    file_size: writing more to a file than the limit.
    process_count: starting more processes than the limit.
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

  def __str__(self) -> str:
    """A statement for people."""
    kept = [name for name, value in vars(self).items() if value is True]
    open_ = [name for name, value in vars(self).items() if value is False]
    lines = [f"model-written code is isolated by {self.level} on this machine"]
    lines.append(f"isolated, as tried: {', '.join(kept) or 'nothing'}")
    lines.append(f"NOT isolated: {', '.join(open_) or 'nothing that was tried'}")
    lines.append(
      "never isolated: system calls are not filtered, limits on memory and processor time "
      "are of each process, and Python and the system's libraries can be read"
    )
    if not self.processes:
      lines.append(
        "code that attacks the process that scores it could stop it, or forge its verdict"
      )
    if self.level == "limits":
      lines.append("a process that leaves its session outlives its scoring")
    return "; ".join(lines)


@functools.cache
def isolation_report(level: Level | None = None) -> Report:
  """Tries what code in a sandbox can reach on this machine; once a process.

  Args:
    level: how to isolate it; None for what `Code` takes.

  Returns:
    A `Report`.

  Raises:
    SandboxError: if the level does not work here.
  """
  level = level or best_level()
  with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as s:
    os.chmod(folder, 0o777)
    file = Path(folder, "file")
    file.write_text("a secret")
    known = {
      "port": s.getsockname()[1],
      "file": str(file),
      "secret": "a secret",
      "folder": folder,
      "process": os.getpid(),
      "memory": _LIMITS.memory,
      "size": _LIMITS.file_size,
      "attempts": _ATTEMPTS,
    }
    task = {"role": "script", "code": _PROBE}
    with Process(task, _LIMITS, level, stdin=json.dumps(known)) as process:
      status = process.wait(time.monotonic() + _LIMITS.seconds)
      if status != 0:
        raise SandboxError(f"what {level!r} isolates can't be found out: status {status}")
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
  )
