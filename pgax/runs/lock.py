"""The lock of a run's folder: one process at a time may write to it."""

import contextlib
import fcntl
import json
import os
import socket
import threading
import time
import uuid
from pathlib import Path
from types import TracebackType

from pgax.errors import UserError

LOCK = ".lock"
# `check_unlocked` holds the lock for a moment; who takes it at that moment tries again.
_TRIES, _PAUSE_SECONDS = 3, 0.05
_BEAT_SECONDS = 10.0
_SILENT_BEATS = 6  # a holder that was silent for so many beats is dead
# File systems that several hosts share. On these, flock may only hold on one host.
_SHARED = frozenset(
  {
    "9p",
    "afs",
    "beegfs",
    "ceph",
    "cifs",
    "fuse.gcsfuse",
    "fuse.s3fs",
    "fuse.sshfs",
    "glusterfs",
    "gpfs",
    "lustre",
    "nfs",
    "nfs4",
    "smb3",
  }
)


class FolderLock:
  """Lets one process at a time write to a folder; survives a holder that was killed.

  On a local disk, the kernel releases the lock (`flock`) when its process ends in any way.
  On a file system that several hosts share, the holder also writes to the lock's file at
  regular times, and a lock whose file stays unchanged for a minute is free.

  Args:
    folder: the folder; it must exist.
    shared: whether several hosts share its file system; None finds out.
    beat_seconds: seconds between two writes of a holder on a shared file system.

  Raises:
    UserError: if another process holds the lock, with its host and number.
  """

  def __init__(
    self,
    folder: Path,
    shared: bool | None = None,
    beat_seconds: float = _BEAT_SECONDS,
  ):
    self._path, self._beat_seconds = folder / LOCK, beat_seconds
    self._token, self._beats, self._process = uuid.uuid4().hex, 0, os.getpid()
    self._stopped, self._lost = threading.Event(), False
    self._thread: threading.Thread | None = None
    self._file, locked = _open(self._path)
    try:
      if shared or not locked or (shared is None and is_shared(folder)):
        self._take_over(locked)
        self._thread = threading.Thread(target=self._beat, daemon=True)
        self._thread.start()
      else:
        self._write()
    except BaseException:
      os.close(self._file)
      raise

  def check(self) -> None:
    """Checks that the lock is still held, and restores its file if that was removed.

    Raises:
      UserError: if another process took the folder over, as this one had been silent for
        too long or its file was removed.
    """
    if self._thread is not None:
      self._lost = self._lost or self._is_taken()
    if not (self._lost or _is_at(self._file, self._path)):
      self._restore()
    if self._lost:
      raise UserError(
        f"{_describe(self._path)} took the folder over, as this process stood still or the "
        f"file {self._path} was removed; nothing more is written to it"
      )

  def release(self) -> None:
    """Releases the lock and removes its file, unless another process holds it by now."""
    if os.getpid() != self._process:  # a fork that ends by an exception passes here, too
      return
    self._stopped.set()
    if self._thread is not None:
      self._thread.join()
    with contextlib.suppress(OSError):  # for instance, the folder was removed
      if not self._lost and _is_at(self._file, self._path):
        self._path.unlink()
    os.close(self._file)

  def __enter__(self) -> "FolderLock":
    return self

  def __exit__(
    self,
    kind: type[BaseException] | None,
    error: BaseException | None,
    traceback: TracebackType | None,
  ) -> None:
    self.release()

  def _take_over(self, locked: bool) -> None:
    """Takes the lock by its file alone, after any other holder was silent for long.

    Args:
      locked: whether no other process of this host holds the kernel's lock.
    """
    before = _read(self._path)
    here = before.get("boot") == _boot()
    if before and not (here and (locked or _has_ended(before))):
      wait = self._beat_seconds * _SILENT_BEATS
      if _changes(self._path, before, wait, self._beat_seconds / 4):
        raise _refusal(self._path)
    self._write()
    time.sleep(self._beat_seconds / 4)  # whoever else took it at this moment wrote, too
    if _read(self._path).get("token") != self._token:
      raise _refusal(self._path)

  def _beat(self) -> None:
    while not self._stopped.wait(self._beat_seconds):
      if self._is_taken():
        self._lost = True
        return
      with contextlib.suppress(OSError):  # such as a full disk; `check` looks for others
        self._write()

  def _is_taken(self) -> bool:
    holder = _read(self._path)
    return bool(holder) and holder.get("token") != self._token

  def _restore(self) -> None:
    """Creates the file anew, unless the folder is gone or another process did."""
    try:
      file, _ = _open(self._path)
    except (OSError, UserError):
      self._lost = self._path.parent.is_dir()
      return
    os.dup2(file, self._file, inheritable=False)  # the kernel's lock goes with it
    os.close(file)
    self._write()

  def _write(self) -> None:
    self._beats += 1
    holder = {
      "host": socket.gethostname(),
      "boot": _boot(),
      "process": os.getpid(),
      "token": self._token,
      "beats": self._beats,
    }
    text = json.dumps(holder).encode()
    os.pwrite(self._file, text, 0)
    os.ftruncate(self._file, len(text))


def _open(path: Path) -> tuple[int, bool]:
  """Opens the lock's file and takes the kernel's lock of it.

  Returns:
    The file, and whether its file system has such locks.
  """
  tries = 0
  while True:
    file, locked = os.open(path, os.O_RDWR | os.O_CREAT, 0o644), True
    try:
      fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
      os.close(file)
      tries += 1
      if tries == _TRIES:
        raise _refusal(path) from None
      time.sleep(_PAUSE_SECONDS)
      continue
    except OSError:
      locked = False
    if _is_at(file, path):
      return file, locked
    os.close(file)  # its last holder removed it in between


def _is_at(file: int, path: Path) -> bool:
  try:
    return os.path.samestat(os.fstat(file), path.stat())
  except FileNotFoundError:
    return False


def check_unlocked(folder: Path) -> None:
  """Checks that no process of this host writes to a folder, leaving it unchanged.

  Args:
    folder: the folder; it need not exist.

  Raises:
    UserError: if one does.
  """
  path = folder / LOCK
  try:
    file = os.open(path, os.O_RDONLY)
  except OSError:
    return
  try:
    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
  except BlockingIOError:
    raise _refusal(path) from None
  except OSError:
    return  # a file system without such locks
  finally:
    os.close(file)


def is_shared(folder: Path, mounts: str | None = None) -> bool:
  """Returns whether several hosts may share the file system of a folder.

  Args:
    folder: the folder.
    mounts: text of `/proc/self/mounts`; None reads it. Systems without it count as local.
  """
  if mounts is None:
    try:
      mounts = Path("/proc/self/mounts").read_text(errors="replace")
    except OSError:
      return False
  resolved, kind, longest = folder.resolve(), "", -1
  for line in mounts.splitlines():
    _, point, type_, *_ = line.split(" ")
    mount = Path(point.replace("\\040", " "))
    if resolved.is_relative_to(mount) and len(mount.parts) >= longest:
      kind, longest = type_, len(mount.parts)
  return kind in _SHARED


def _read(path: Path) -> dict:
  """The holder as it described itself; empty without one."""
  try:
    holder = json.loads(path.read_text(encoding="utf-8"))
  except (OSError, ValueError):  # also half a write
    return {}
  return holder if isinstance(holder, dict) else {}


def _boot() -> str:
  """What tells this host, since it started, from all others."""
  try:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
  except OSError:
    return socket.gethostname()


def _has_ended(holder: dict) -> bool:
  """Whether no process of this host has the number of the holder."""
  try:
    os.kill(int(holder["process"]), 0)
  except ProcessLookupError:
    return True
  except (KeyError, TypeError, ValueError, OverflowError, OSError):
    return False
  return False


def _changes(path: Path, before: dict, seconds: float, interval: float) -> bool:
  """Whether a holder other than a dead one writes within some time."""
  for _ in range(max(int(seconds / interval), 1)):
    time.sleep(interval)
    now = _read(path)
    if now and now != before:
      return True
  return False


def _describe(path: Path) -> str:
  holder = _read(path)
  if not holder:
    return "another process"
  return f"process {holder.get('process')} on {holder.get('host')}"


def _refusal(path: Path) -> UserError:
  return UserError(
    f"workdir {path.parent} is in use by {_describe(path)}; wait until it has ended, or "
    "give another workdir"
  )
