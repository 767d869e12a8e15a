"""Metrics of a scored rollout, keyed by their log names."""

import math
import time
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pgax.algorithms import filters
from pgax.data.mixture import NAME as MIXTURE
from pgax.distributed.placement import fetch
from pgax.rollout.scoring import RewardResults, failures
from pgax.types import Array, Example, PyTree, Rollout


class Completions(NamedTuple):
  """How long completions are and whether they ended, on the host of every process.

  Attributes:
    lengths: `[N, G]` int64, number of tokens that the policy sampled.
    finished: `[N, G]` bool, whether the completion ended before the length limit.
  """

  lengths: np.ndarray
  finished: np.ndarray

  @classmethod
  def of(cls, rollout: Rollout, count: int | None = None) -> "Completions":
    """Returns those of the first `count` prompts of a rollout, by default of all."""
    lengths, finished = fetch((_lengths(rollout.action_mask), rollout.finished))
    return cls(lengths.astype(np.int64)[:count], finished[:count])


@jax.jit
def _lengths(mask: Array) -> Array:
  return jnp.sum(mask, axis=-1, dtype=jnp.int32)


def rollout_metrics(
  completions: Completions, results: RewardResults, examples: Sequence[Example] = ()
) -> dict[str, float]:
  """Computes metrics of a scored rollout.

  Args:
    completions: lengths of the completions.
    results: results of the reward function.
    examples: the `N` problems; those of a mixture have the rewards of each task reported.

  Returns:
    Scalars; `unscorable/REASON` is a number of completions. Reward statistics are over the
    completions that could be scored, nan if there are none; a group without two different
    rewards has zero variance.
  """
  lengths, finished = completions
  rewards, valid = results.rewards, results.valid
  scored = rewards[valid] if valid.any() else np.full(1, np.nan, np.float32)
  metrics = {
    "reward/mean": scored.mean(),
    "reward/std": scored.std(),
    "reward/unscorable": 1.0 - valid.mean(),
    "groups/zero_variance": 1.0 - filters.informative(rewards, valid).mean(),
    "groups/all_right": np.mean((results.right | ~valid).all(-1) & valid.any(-1)),
    "groups/all_wrong": np.mean(~results.right.any(-1) & valid.any(-1)),
    "length/mean": lengths.mean(),
    "length/right": _finite_mean(np.where(results.right, lengths, np.nan)),
    "length/wrong": _finite_mean(np.where(valid & ~results.right, lengths, np.nan)),
    "length/truncated": 1.0 - finished.mean(),
  }
  metrics = {name: float(value) for name, value in metrics.items()}
  metrics["tokens/generated"] = int(lengths.sum())
  metrics["completions/generated"] = rewards.size
  metrics |= {f"unscorable/{reason}": n for reason, n in failures(results).items()}
  metrics |= {f"reward/{name}": _finite_mean(x) for name, x in results.scores.items()}
  tasks = np.array([example.metadata.get(MIXTURE, "") for example in examples])
  for task in sorted({*tasks.tolist()} - {""}):
    of_task = (tasks == task)[:, None] & valid
    metrics[f"reward/task/{task}"] = _finite_mean(np.where(of_task, rewards, np.nan))
  return metrics


def _finite_mean(values: np.ndarray) -> float:
  finite = values[np.isfinite(values)]
  return float(finite.mean()) if finite.size else math.nan


class Stopwatch:
  """Measures wall-clock seconds: in all, and from lap to lap.

  Args:
    before: seconds to count on from, such as those of a run until its checkpoint.
  """

  def __init__(self, before: float = 0.0):
    self._lap = time.perf_counter()
    self._start = self._lap - before

  @property
  def seconds(self) -> float:
    """Seconds since the start, and those before it."""
    return time.perf_counter() - self._start

  def lap(self, *arrays: PyTree) -> float:
    """Waits for arrays, and returns the seconds since the last lap or the start."""
    jax.block_until_ready(arrays)
    start, self._lap = self._lap, time.perf_counter()
    return self._lap - start
