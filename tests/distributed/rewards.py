"""Rewards of the runs of `jobs.py`."""

import os
import signal

from pgax.types import StepReward

_calls = 0


def parity(prompt, completion, ground_truth, metadata) -> dict[str, float]:
  """The parity of the text; the same for all completions of some problems."""
  global _calls
  _calls += 1
  if os.environ.get("KILL_CALL") == str(_calls):
    os.kill(os.getpid(), signal.SIGKILL)
  total = 0 if int(ground_truth or 0) % 3 == 0 else sum(map(ord, completion))
  return {"reward": float(total % 2), "length": float(len(completion))}


def mostly_bad(prompt, completion, ground_truth, metadata) -> dict[str, float]:
  """Scores that some completions lack, and some that fail."""
  total = sum(map(ord, completion))
  extra = {"odd": 1.0} if total % 2 else {}
  return {"reward": float("nan") if total % 5 == 0 else float(total % 7), **extra}


def last(prompt, completion, ground_truth, metadata) -> list[StepReward]:
  """A step that ends in the middle, and one that ends the text."""
  if not completion:
    return []
  half = StepReward(max(len(completion) // 2, 1), float(sum(map(ord, completion)) % 3))
  return [half, StepReward(len(completion), 1.0)]
