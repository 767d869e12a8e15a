"""Sandboxes: child processes that can compute, and as little else as the system allows."""

import contextlib
import dataclasses
import functools
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Literal

from pgax.sandbox.isolation import FOLDER

# From the strongest to the weakest.
Level = Literal["bubblewrap", "namespaces", "limits"]
LEVELS: tuple[Level, ...] = ("bubblewrap", "namespaces", "limits")
_LAUNCHER = Path(__file__).with_name("launcher.py")


@dataclasses.dataclass(frozen=True)
class Limits:
  """What a sandbox may use.

  Attributes:
    seconds: of wall time, for all the tests of a completion together.
    cpu_seconds: of processor time, of each process.
    memory: bytes of address space, of each process.
    processes: processes and threads at a time.
    file_size: bytes of a file, of what is printed, and of all files in its folder together
      where that is a file system of its own.
    open_files: at a time, in each process.
  """

  seconds: float = 5.0
  cpu_seconds: int = 5
  memory: int = 512 * 2**20
  processes: int = 16
  file_size: int = 4 * 2**20
  open_files: int = 64

  def __post_init__(self):
    for name, value in vars(self).items():
      if not 0 < value < float("inf"):
        raise ValueError(f"{name} is {value}; it must be positive, and finite")

  def of_process(self) -> dict[str, int]:
    """Those that the system enforces, by the names of `isolation.set_limits`."""
    return {k: v for k, v in dataclasses.asdict(self).items() if k != "seconds"}


class SandboxError(RuntimeError):
  """A sandbox could not be made; it says nothing about the code."""


class Process:
  """A process in a sandbox.

  Args:
    task: what to do; see `launcher`.
    limits: its limits.
    level: how it is isolated.
    stdin: text of its standard input.
    pass_fds: file descriptors that stay open in it.
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
    folder = self._files.enter_context(
      tempfile.TemporaryDirectory(prefix="pgax-sandbox-", ignore_cleanup_errors=True)
    )
    whole = task | {"limits": limits.of_process(), "level": level, "folder": folder}
    setup = self._file(json.dumps(whole))
    # Files and not pipes: the limit on files holds for them, and nobody has to read along.
    self._stdout, self._stderr = self._file(), self._file()
    self._limit = limits.file_size
    python = [sys.executable, "-I", "-S", "-X", "utf8"]
    self._ready, ready = os.pipe()
    self._files.callback(os.close, self._ready)
    try:
      self._process = subprocess.Popen(
        [
          *_wrapper(level, limits),
          *python,
          str(_LAUNCHER),
          str(setup.fileno()),
          str(ready),
        ],
        stdin=self._file(stdin),
        stdout=self._stdout,
        stderr=self._stderr,
        env={},
        cwd=folder,
        pass_fds=[setup.fileno(), ready, *pass_fds],
        start_new_session=True,
      )
    except BaseException:
      self._files.close()
      raise
    finally:
      os.close(ready)

  def _file(self, text: str = "") -> IO[bytes]:
    file = self._files.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
    file.write(text.encode("utf-8", errors="replace"))
    file.flush()
    file.seek(0)
    return file

  def wait(self, until: float) -> int | None:
    """Waits for its end, and kills it at a time of the monotonic clock.

    Returns:
      Its exit status; None if it had to be killed.

    Raises:
      SandboxError: if it did not come to run the code.
    """
    try:
      status = self._process.wait(max(until - time.monotonic(), 0))
    except subprocess.TimeoutExpired:
      status = None
      self.kill()
    if not select.select([self._ready], [], [], 0)[0] or not os.read(self._ready, 1):
      raise SandboxError(f"the sandbox could not be made in time: {self._error()}")
    return status

  def _error(self) -> str:
    self._stderr.seek(0)
    return self._stderr.read(500).decode(errors="replace").strip()

  def output(self) -> str:
    """What it has printed, up to the limit."""
    self._stdout.seek(0)
    return self._stdout.read(self._limit).decode(errors="replace")

  def kill(self) -> None:
    """Ends it, and all that is in the sandbox with it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
      os.killpg(self._process.pid, signal.SIGKILL)
    self._process.kill()
    self._process.wait()

  def close(self) -> None:
    """Ends it, and removes its folder."""
    self.kill()
    self._files.close()

  def __enter__(self) -> "Process":
    return self

  def __exit__(self, *_: object) -> None:
    self.close()


def _wrapper(level: Level, limits: Limits) -> list[str]:
  """The command that the launcher is given to; empty where it isolates itself."""
  if level != "bubblewrap":
    return []
  prefix = os.path.realpath(sys.base_prefix)
  folders = ["/usr", *([] if prefix.startswith("/usr") else [prefix])]
  folders += [sys.prefix, str(_LAUNCHER.parent)]
  bwrap = shutil.which("bwrap") or "bwrap"  # it is started with an empty environment
  # Bubblewrap's own first process could be traced by the code; that of the launcher can't.
  command = [bwrap, "--unshare-all", "--die-with-parent", "--as-pid-1", "--clearenv"]
  for name in ("lib", "lib64", "bin"):
    if os.path.islink(f"/{name}"):
      command += ["--symlink", os.readlink(f"/{name}"), f"/{name}"]
    elif os.path.isdir(f"/{name}"):
      folders.append(f"/{name}")
  for folder in folders:
    command += ["--ro-bind", folder, folder]
  command += ["--dev", "/dev", "--size", str(limits.file_size)]
  command += ["--tmpfs", FOLDER, "--remount-ro", "/", "--chdir", FOLDER]
  return [*command, "--"]


@functools.cache
def available(level: Level) -> bool:
  """Whether a level works on this machine: it is tried out, once a process."""
  if level == "limits":
    return True
  if sys.platform != "linux" or (level == "bubblewrap" and not shutil.which("bwrap")):
    return False
  try:
    with Process(
      {"role": "script", "code": "print(1)"}, Limits(seconds=10), level
    ) as child:
      return child.wait(time.monotonic() + 10) == 0 and child.output() == "1\n"
  except (SandboxError, OSError):
    return False


def best_level() -> Level:
  """The strongest level that works here.

  Bubblewrap first, but not for root, to whom it leaves root's exemption from the limit on
  processes; there the namespaces come first, which it enters as another user.
  """
  order = LEVELS if os.geteuid() else ("namespaces", "bubblewrap", "limits")
  return next(level for level in order if available(level))


@contextlib.contextmanager
def pipe() -> Iterator[tuple[int, int]]:
  """A pipe between two sandboxes; this process keeps no end of it."""
  ends = os.pipe()
  try:
    yield ends
  finally:
    for fd in ends:
      os.close(fd)
