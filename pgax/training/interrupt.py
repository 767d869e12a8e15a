"""Ctrl-C as a request to stop at the next safe place."""

import signal
from types import FrameType


class Interrupt:
  """While open, the first SIGINT or SIGTERM is remembered; the second acts at once."""

  def __init__(self):
    self.requested = False
    self._previous = {}

  def __enter__(self) -> "Interrupt":
    for number in (signal.SIGINT, signal.SIGTERM):
      self._previous[number] = signal.signal(number, self._remember)
    return self

  def __exit__(self, *error) -> None:
    self._restore()

  def _restore(self) -> None:
    for number, handler in self._previous.items():
      signal.signal(number, handler)
    self._previous = {}

  def _remember(self, number: int, frame: FrameType | None) -> None:
    del number, frame
    self.requested = True
    self._restore()
