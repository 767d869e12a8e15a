"""Reward functions that worker processes can load, good and bad."""

import ctypes
import math
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from tests.waiting import eventually


def by_command(prompt, completion, ground_truth, metadata) -> dict[str, float]:
  """Does what the completion says."""
  del prompt, ground_truth
  match completion.split():
    case ["hang"]:
      while True:
        pass
    case ["hang_in_c"]:  # never comes back to the interpreter
      signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals) - {signal.SIGKILL})
      ctypes.CDLL(None).sleep(1000)
    case ["crash"]:
      ctypes.string_at(0)
    case ["kill"]:
      os.kill(os.getpid(), signal.SIGKILL)
    case ["leave"]:
      os._exit(0)
    case ["exit"]:
      sys.exit(0)
    case ["raise"]:
      raise KeyError("such a key")
    case ["nan"]:
      return {"reward": math.nan}
    case ["inf"]:
      return {"reward": math.inf}
    case ["text"]:
      return {"reward": "good"}
    case ["nothing"]:
      return {"accuracy": 1.0}
    case ["large"]:
      return {"reward": 1.0} | {str(i): 1.0 for i in range(10_000)}
    case ["spawn"]:
      child = subprocess.Popen(["sleep", "1000"])
      Path(metadata["file"]).write_text(str(child.pid))
      time.sleep(1000)
    case ["meet", own, other]:
      Path(own).touch()
      return {"reward": float(eventually(Path(other).exists))}
    case ["alarm"]:  # kills the process, but after the job
      signal.setitimer(signal.ITIMER_REAL, 0.02)
    case ["late"]:  # a thread ends the process during the next job
      threading.Thread(target=_end_later, daemon=True).start()
    case ["fork"]:  # both processes return
      if not os.fork():
        time.sleep(0.03)
        return {"reward": 7.0}
    case ["slow"]:
      time.sleep(0.1)
    case ["allocate", size]:
      return {"reward": float(len(bytearray(int(size))))}
    case ["modules"]:
      return {"reward": 1.0, "processes": float(os.getpid())}
  return {"reward": float(len(completion)), "half": len(completion) / 2}


def _end_later() -> None:
  time.sleep(0.03)
  os._exit(0)


def one_in_ten(prompt, completion, ground_truth, metadata) -> dict[str, float]:
  """Hangs on one completion in ten, crashes on one, and returns nan on one."""
  del prompt, ground_truth, metadata
  match sum(map(ord, completion)) % 10:
    case 7:
      while True:
        pass
    case 8:
      os._exit(3)
    case 9:
      return {"reward": math.nan}
    case digit:
      return {"reward": float(digit % 2)}
