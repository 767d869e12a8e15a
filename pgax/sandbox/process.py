"""Child processes in sandboxes, which can compute and do as little else as possible."""

import contextlib
import dataclasses
import marshal
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Literal

from pgax.sandbox.bubblewrap import bubblewrap_command
from pgax.sandbox.folder import sandbox_folder

# Isolation levels, from the strongest to the weakest.
Level = Literal["bubblewrap", "namespaces", "limits"]
LEVELS: tuple[Level, ...] = ("bubblewrap", "namespaces", "limits")
_LAUNCHER = Path(__file__).with_name("launcher.py")


@dataclasses.dataclass(frozen=True)
class Limits:
  """Resource limits of a sandbox.

  Attributes:
    seconds: wall time of all tests of one source together, in seconds.
    cpu_seconds: processor time of each process, in seconds.
    memory: address space of each process, in bytes. It includes stacks that are reserved,
      and programs with deep recursion often reserve 512 MiB for a thread.
    processes: number of threads at a time, and of processes where the system cannot refuse
      new ones. At level `limits`, a user other than root may start more threads.
    file_size: size of a file and of the printed output, in bytes. If the sandbox's folder
      is a file system of its own, also the size of all files in it together.
    open_files: number of file descriptors that each process has open at a time.
  """

  seconds: float = 5.0
  cpu_seconds: int = 5
  memory: int = 1024 * 2**20
  processes: int = 64
  file_size: int = 16 * 2**20
  open_files: int = 64

  def __post_init__(self):
    for name, value in vars(self).items():
      if not 0 < value < float("inf"):
        raise ValueError(f"{name} is {value}; it must be positive and finite")

  def of_process(self) -> dict[str, int]:
    """Returns the arguments of `isolation.set_limits`."""
    return {k: v for k, v in dataclasses.asdict(self).items() if k != "seconds"}


class SandboxError(RuntimeError):
  """A sandbox could not be created; this says nothing about the code."""


class Process:
  """A process in a sandbox.

  Args:
    task: the task that `launcher` runs.
    limits: resource limits.
    level: isolation level.
    stdin: text of the standard input.
    pass_fds: file descriptors that stay open in the process.
  """

  def __init__(
    self,
    task: dict[str, Any],
    limits: Limits,
    level: Level,
    stdin: str = "",
    pass_fds: Sequence[int] = (),
  ):
    self._files = contextlib.ExitStack()
    # At the other levels, the folder is a file system in memory that ends with the sandbox.
    folder = self._files.enter_context(sandbox_folder()) if level == "limits" else "/"
    settings = {"limits": limits.of_process(), "level": level, "folder": folder}
    # Marshal is the fastest format that the launcher can read, and it trusts this process.
    task_file = self._file(marshal.dumps(task | settings))
    # Files rather than pipes: the limit on file sizes applies, and nobody must drain them.
    self._stdout, self._stderr = self._file(), self._file()
    self._max_output = limits.file_size
    command = [sys.executable, "-I", "-S", "-X", "utf8", str(_LAUNCHER)]
    if level == "bubblewrap":
      command = bubblewrap_command(str(_LAUNCHER.parent), limits.file_size) + command
    self._ready, ready = os.pipe()
    self._files.callback(os.close, self._ready)
    try:
      self._process = subprocess.Popen(
        [*command, str(task_file.fileno()), str(ready)],
        stdin=self._file(stdin.encode("utf-8", errors="replace")),
        stdout=self._stdout,
        stderr=self._stderr,
        env={},
        cwd=folder,
        pass_fds=[task_file.fileno(), ready, *pass_fds],
        start_new_session=True,
      )
    except BaseException:
      self._files.close()
      raise
    finally:
      os.close(ready)

  def _file(self, data: bytes = b"") -> IO[bytes]:
    file = self._files.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
    file.write(data)
    file.flush()
    file.seek(0)
    return file

  def wait(self, deadline: float) -> int | None:
    """Waits for the process to end and kills it at the deadline.

    Args:
      deadline: time of the monotonic clock, in seconds.

    Returns:
      The exit status; None if the process was killed.

    Raises:
      SandboxError: if the process never started to run the code.
    """
    try:
      status = self._process.wait(max(deadline - time.monotonic(), 0))
    except subprocess.TimeoutExpired:
      status = None
      self.kill()
    if not select.select([self._ready], [], [], 0)[0] or not os.read(self._ready, 1):
      raise SandboxError(f"the sandbox could not be created in time: {self._error()}")
    return status

  def _error(self) -> str:
    self._stderr.seek(0)
    return self._stderr.read(500).decode(errors="replace").strip()

  def output(self) -> str:
    """Returns the printed text, up to the limit on file sizes."""
    self._stdout.seek(0)
    return self._stdout.read(self._max_output).decode(errors="replace")

  def kill(self) -> None:
    """Kills the process and everything else in its sandbox."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
      os.killpg(self._process.pid, signal.SIGKILL)
    self._process.kill()
    self._process.wait()

  def close(self) -> None:
    """Kills the process and removes its folder."""
    self.kill()
    self._files.close()

  def __enter__(self) -> "Process":
    return self

  def __exit__(self, *_: object) -> None:
    self.close()


@contextlib.contextmanager
def pipe() -> Iterator[tuple[int, int]]:
  """Creates a pipe between two sandboxes; this process closes both ends on exit."""
  ends = os.pipe()
  try:
    yield ends
  finally:
    for fd in ends:
      os.close(fd)
