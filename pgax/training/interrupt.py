"""Ctrl-C as a request to stop at the next safe place."""

import signal
import sys
import threading
from types import FrameType


class Interrupt:
  """While open, the first SIGINT or SIGTERM is remembered; the second acts at once.

  Python delivers signals to the main thread only; in another one this does nothing.
  """

  def __init__(self):
    self.requested = False
    self._previous = {}

  def __enter__(self) -> "Interrupt":
    if threading.current_thread() is threading.main_thread():
      for number in (signal.SIGINT, signal.SIGTERM):
        self._previous[number] = signal.signal(number, self._remember)
    return self

  def __exit__(self, *error) -> None:
    self._restore()

  def _restore(self) -> None:
    for number, handler in self._previous.items():
      # None stands for a handler that was not installed from Python.
      signal.signal(number, signal.SIG_DFL if handler is None else handler)
    self._previous = {}

  def _remember(self, number: int, frame: FrameType | None) -> None:
    del number, frame
    self.requested = True
    print("\nstopping after this step; once more stops at once", file=sys.stderr)
    self._restore()
