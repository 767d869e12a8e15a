"""Waiting for a condition, longer on a busy machine, such as the end of a process."""

import time
from collections.abc import Callable
from pathlib import Path


def eventually(condition: Callable[[], bool], seconds: float = 60.0) -> bool:
  """Polls a condition until it holds; returns False after the time limit."""
  end = time.monotonic() + seconds
  while not condition():
    if time.monotonic() > end:
      return False
    time.sleep(0.01)
  return True


def running(mark: str, place: str = "cmdline") -> list[Path]:
  """Returns processes on this machine whose command line or name contains a mark."""
  processes = []
  for path in Path("/proc").glob(f"[0-9]*/{place}"):
    try:
      if mark.encode() in path.read_bytes():
        processes.append(path)
    except OSError:  # the process has ended
      pass
  return processes
