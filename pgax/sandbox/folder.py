"""Folders of sandboxes without a separate file system.

Each is locked while its owner lives, so that a later process can tell, and remove, what a
killed one has left.
"""

import contextlib
import fcntl
import functools
import os
import tempfile
import time
from collections.abc import Iterator

_PREFIX = "pgax-sandbox-"
_MIN_AGE = 60.0  # seconds; a younger folder may not be locked yet


@contextlib.contextmanager
def sandbox_folder() -> Iterator[str]:
  """Creates an empty folder and removes it on exit with all of its contents."""
  parent = tempfile.gettempdir()
  remove_stale(parent)
  path = tempfile.mkdtemp(prefix=_PREFIX, dir=parent)
  lock = os.open(path, os.O_RDONLY)
  try:
    fcntl.flock(lock, fcntl.LOCK_EX)
    yield path
  finally:
    remove(path)
    os.close(lock)


@functools.cache
def remove_stale(parent: str) -> None:
  """Removes folders whose owners have ended without removing them, once in a process.

  Args:
    parent: the folder that contains them.
  """
  with contextlib.suppress(OSError):
    for entry in list(os.scandir(parent)):
      with contextlib.suppress(OSError):
        if entry.name.startswith(_PREFIX) and entry.is_dir(follow_symlinks=False):
          _remove_if_stale(entry)


def _remove_if_stale(entry: os.DirEntry) -> None:
  status = entry.stat(follow_symlinks=False)
  if status.st_uid != os.geteuid() or time.time() - status.st_mtime < _MIN_AGE:
    return
  try:
    lock = os.open(entry.path, os.O_RDONLY | os.O_NOFOLLOW)
  except PermissionError:  # the code in it has changed the mode
    lock = _open(entry.path, None)
  try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises if the owner lives
    remove(entry.path)
  finally:
    os.close(lock)


def remove(path: str) -> None:
  """Removes a folder, ignoring files that cannot be removed.

  Folders may be nested deeper than paths and the stack allow, and their modes may forbid
  everything: one folder at a time is open, and is made accessible before.

  Args:
    path: the folder.
  """
  with contextlib.suppress(OSError):
    top = _open(path, None)
    try:
      _empty(top)
    finally:
      os.close(top)
    os.rmdir(path)


def _empty(top: int) -> None:
  """Removes the contents of an open folder."""
  current = os.dup(top)
  # For each folder from the outermost to the current one, the folders left to remove.
  remaining, path = [_remove_files(current)], []
  try:
    while True:
      if remaining[-1]:
        name = remaining[-1].pop()
        with contextlib.suppress(OSError):
          inner = _open(name, current)
          path.append((name, os.fstat(current)))
          os.close(current)
          current = inner
          remaining.append([])
          remaining[-1] += _remove_files(current)
      elif not path:
        return
      else:
        name, status = path.pop()
        outer = os.open("..", os.O_RDONLY | os.O_DIRECTORY, dir_fd=current)
        os.close(current)
        current = outer
        if not os.path.samestat(os.fstat(current), status):
          return  # somebody moves folders at the same time
        remaining.pop()
        with contextlib.suppress(OSError):
          os.rmdir(name, dir_fd=current)
  finally:
    os.close(current)


def _open(name: str, parent: int | None) -> int:
  """Opens a folder of any mode; raises for a link."""
  flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY
  handle = os.open(name, flags | getattr(os, "O_PATH", 0), dir_fd=parent)
  try:
    if os.path.exists("/proc/self/fd"):
      os.chmod(f"/proc/self/fd/{handle}", 0o700)
    return os.open(name, flags, dir_fd=parent)
  finally:
    os.close(handle)


def _remove_files(folder: int) -> list[str]:
  """Removes the files of an open folder and returns the names of its folders."""
  folders = []
  for name in os.listdir(folder):
    try:
      os.unlink(name, dir_fd=folder)
    except OSError:
      folders.append(name)
  return folders
