"""Interrupts as requests to stop after the current step."""

import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType

from pgax.distributed.hosts import any_of


class StoppedError(Exception):
  """Work was stopped on request, and its results are discarded."""


def check_stop(stop: Callable[[], bool] | None) -> None:
  """Raises `StoppedError` if a stop is requested; None never requests one."""
  if stop is not None and stop():
    raise StoppedError


class Interrupt:
  """Turns the first SIGINT or SIGTERM into a request; the second one stops at once.

  Python delivers signals to the main thread only, so in other threads this does nothing.

  Attributes:
    requested: whether a signal has arrived since the context was entered.
  """

  def __init__(self):
    self.requested = False
    self._agreed = False
    self._previous = {}

  def stop(self) -> bool:
    """Returns whether a signal has arrived in any process; all of them call it together."""
    self._agreed = self._agreed or any_of(self.requested)
    return self._agreed

  def __enter__(self) -> "Interrupt":
    if threading.current_thread() is threading.main_thread():
      for number in (signal.SIGINT, signal.SIGTERM):
        self._previous[number] = signal.signal(number, self._remember)
    return self

  def __exit__(self, *error) -> None:
    self._restore()

  def _restore(self) -> None:
    for number, handler in self._previous.items():
      # None means that the handler was not installed from Python.
      signal.signal(number, signal.SIG_DFL if handler is None else handler)
    self._previous = {}

  def _remember(self, number: int, frame: FrameType | None) -> None:
    del number, frame
    self.requested = True
    print("\nstopping; interrupt again to stop at once", file=sys.stderr)
    self._restore()
