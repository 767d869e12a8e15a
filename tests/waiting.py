"""Waiting for a condition, longer on a busy machine."""

import time
from collections.abc import Callable


def eventually(condition: Callable[[], bool], seconds: float = 60.0) -> bool:
  """Polls a condition until it holds; returns False after the time limit."""
  end = time.monotonic() + seconds
  while not condition():
    if time.monotonic() > end:
      return False
    time.sleep(0.01)
  return True
