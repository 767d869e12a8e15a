"""Chooses the isolation level of sandboxes on this machine."""

import functools
import os
import shutil
import sys
import time

from pgax.sandbox.process import LEVELS, Level, Limits, Process, SandboxError


@functools.cache
def available(level: Level) -> bool:
  """Returns whether a level works on this machine, by starting a sandbox.

  The result is cached for the lifetime of the process.
  """
  if level == "limits":
    return True
  if sys.platform != "linux" or (level == "bubblewrap" and not shutil.which("bwrap")):
    return False
  try:
    with Process(
      {"role": "script", "code": "print(1)"}, Limits(seconds=10), level
    ) as process:
      return process.wait(time.monotonic() + 10) == 0 and process.output() == "1\n"
  except (SandboxError, OSError):
    return False


def best_level() -> Level:
  """Returns the strongest level that works on this machine.

  Bubblewrap comes first, except for root: bubblewrap leaves root exempt from the limit on
  processes, whereas a process of root enters the namespaces as another user.
  """
  order = LEVELS if os.geteuid() else ("namespaces", "bubblewrap", "limits")
  return next(level for level in order if available(level))
