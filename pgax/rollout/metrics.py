"""Metrics of a scored rollout, keyed by their log names."""

import math
import time

import jax
import numpy as np

from pgax.algorithms import filters
from pgax.rollout.scoring import RewardResults, failures
from pgax.types import PyTree, Rollout


def rollout_metrics(rollout: Rollout, results: RewardResults) -> dict[str, float]:
  """Computes metrics of a scored rollout.

  Args:
    rollout: the completions.
    results: results of the reward function.

  Returns:
    Scalars; `unscorable/REASON` is a number of completions. Reward statistics are over the
    completions that could be scored, nan if there are none; a group without two different
    rewards has zero variance.
  """
  mask, finished = jax.device_get((rollout.action_mask, rollout.finished))
  rewards, valid = results.rewards, results.valid
  scored = rewards[valid] if valid.any() else np.full(1, np.nan, np.float32)
  metrics = {
    "reward/mean": scored.mean(),
    "reward/std": scored.std(),
    "reward/unscorable": 1.0 - valid.mean(),
    "groups/zero_variance": 1.0 - filters.informative(rewards, valid).mean(),
    "length/mean": mask.sum(-1).mean(),
    "length/truncated": 1.0 - finished.mean(),
  }
  metrics = {name: float(value) for name, value in metrics.items()}
  metrics["tokens/generated"] = int(mask.sum())
  metrics["completions/generated"] = rewards.size
  metrics |= {f"unscorable/{reason}": n for reason, n in failures(results).items()}
  return metrics | {f"reward/{name}": _finite_mean(x) for name, x in results.scores.items()}


def _finite_mean(values: np.ndarray) -> float:
  finite = values[np.isfinite(values)]
  return float(finite.mean()) if finite.size else math.nan


class Stopwatch:
  """Measures wall-clock seconds from lap to lap."""

  def __init__(self):
    self._start = time.perf_counter()

  def lap(self, *arrays: PyTree) -> float:
    """Waits for arrays, and returns the seconds since the last lap or the start."""
    jax.block_until_ready(arrays)
    start, self._start = self._start, time.perf_counter()
    return self._start - start
