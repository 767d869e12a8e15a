"""The lock of a run's folder: one process at a time may write to it."""

import os
import socket
import time
from pathlib import Path

import filelock

from pgax.errors import UserError

LOCK = ".lock"
_LEASE_SECONDS = 60.0  # a holder that did not refresh its claim for so long has lost it
_UNREADABLE_SECONDS = 0.5  # after which a file that names no holder is removed


class FolderLock:
  """Locks a folder for one process; a lock whose holder was killed is free.

  The holder refreshes its claim in another thread, on local disks and on file systems that
  several hosts share (see `filelock.SoftFileLease`). A claim of a process of this host that
  has ended is free at once; that of another host, once it was not refreshed for a minute.

  Args:
    folder: the folder; it must exist.
    lease_seconds: seconds after which a claim that is not refreshed is free.

  Raises:
    UserError: if another process holds the lock, with its host and number.
  """

  def __init__(self, folder: Path, lease_seconds: float = _LEASE_SECONDS):
    self._process, self._seconds = os.getpid(), lease_seconds
    self._lock = _lease(folder, lease_seconds)
    self._acquire()

  def _acquire(self) -> None:
    lock, wait = self._lock, 0.0
    try:
      lock.acquire(timeout=0)
      return
    except filelock.Timeout:
      if lock.owner is None:  # a claim that is being written, or a file of something else
        time.sleep(_UNREADABLE_SECONDS)
        if lock.owner is None:
          Path(lock.lock_file).unlink(missing_ok=True)
      elif not _is_here(lock.owner):
        wait = 1.5 * self._seconds
    try:
      lock.acquire(timeout=wait)
    except filelock.Timeout:
      raise _refusal(lock) from None

  def check(self) -> None:
    """Checks that the lock is still held, and restores its file if that was removed.

    Raises:
      UserError: if another process took the folder over, since this one had been suspended
        for too long or its file was removed.
    """
    owner = self._lock.owner
    if owner is None and Path(self._lock.lock_file).parent.is_dir():
      self._lock.release(force=True)
      self._acquire()
    elif owner is not None and owner.token != self._lock.token:
      raise UserError(
        f"{_describe(self._lock)} took over the folder: this process was suspended, or "
        f"the file {self._lock.lock_file} was removed; nothing more is written to it"
      )

  def release(self) -> None:
    """Releases the lock and removes its file, unless another process holds it by now."""
    if os.getpid() == self._process:  # a fork that ends by an exception passes here, too
      self._lock.release(force=True)

  def __enter__(self) -> "FolderLock":
    return self

  def __exit__(self, *_: object) -> None:
    self.release()


def check_unlocked(folder: Path) -> None:
  """Checks that no process of this host writes to a folder, leaving it unchanged.

  Args:
    folder: the folder; it need not exist.

  Raises:
    UserError: if one does.
  """
  lock = _lease(folder, _LEASE_SECONDS)
  owner = lock.owner
  if owner is not None and _is_here(owner) and _is_alive(owner.pid):
    raise _refusal(lock)


def _lease(folder: Path, seconds: float) -> filelock.SoftFileLease:
  return filelock.SoftFileLease(folder / LOCK, lease_duration=seconds, thread_local=False)


def _is_here(owner: "filelock.OwnerRecord") -> bool:
  """Returns whether a holder is on this host; the library may append a namespace."""
  return owner.hostname.split("?")[0] == socket.gethostname()


def _is_alive(process: int) -> bool:
  try:
    os.kill(process, 0)
  except ProcessLookupError:
    return False
  except OSError:  # somebody else's
    return True
  return True


def _describe(lock: filelock.SoftFileLease) -> str:
  owner = lock.owner
  return f"process {owner.pid} on {owner.hostname}" if owner else "another process"


def _refusal(lock: filelock.SoftFileLease) -> UserError:
  return UserError(
    f"workdir {Path(lock.lock_file).parent} is in use by {_describe(lock)}; wait until it "
    "has ended, or give another workdir"
  )
