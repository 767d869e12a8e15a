"""Waiting for what comes soon, and on a busy machine a little later."""

import time
from collections.abc import Callable


def eventually(condition: Callable[[], bool], seconds: float = 60.0) -> bool:
  """Whether a condition comes to hold; asked again and again until it does."""
  end = time.monotonic() + seconds
  while not condition():
    if time.monotonic() > end:
      return False
    time.sleep(0.01)
  return True
