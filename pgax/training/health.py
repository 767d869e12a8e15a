"""Checks of a step's metrics that warn, or stop a run, as soon as it goes wrong."""

import contextlib
import math
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

import jax
import numpy as np

from pgax.algorithms import Algorithm
from pgax.distributed.hosts import on_writer
from pgax.distributed.placement import fetch
from pgax.errors import UserError
from pgax.types import PyTree

# Rounding in float32 stays two orders of magnitude below.
_SAMPLER_TOLERANCE = 1e-3
_WATCHED = ("loss", "grad_norm", "value/grad_norm")
_FOLDER = "skipped"
_KEPT = 10  # batches of skipped updates, the latest ones


class SamplerMismatchWarning(UserWarning):
  """Sampler and trainer give the same tokens different probabilities."""


class UncorrectedLagWarning(UserWarning):
  """Completions of an older policy are learned from as if they were the policy's own."""


class SkippedUpdateWarning(UserWarning):
  """An update was not finite and was skipped."""


class DivergedError(UserError):
  """Several updates in a row were not finite."""


class SkippedUpdates:
  """Keeps the batches of skipped updates, and stops a run after several in a row.

  An optimizer step whose loss, gradient or result is not finite is not taken (see
  `learner.gradients.apply_update`), so that parameters and checkpoints stay good.

  Args:
    workdir: folder of the run; batches are kept in its folder `skipped`.
    limit: number of steps in a row with a skipped update that stops the run.
    last_checkpoint: returns the number of the latest checkpoint, or None.
  """

  def __init__(self, workdir: Path, limit: int, last_checkpoint: Callable[[], int | None]):
    self._folder, self._limit = workdir / _FOLDER, limit
    self._last_checkpoint = last_checkpoint
    self._in_a_row = 0

  def check(
    self, name: str, step: int, metrics: Mapping[str, float], batch: PyTree
  ) -> None:
    """Looks at the metrics of a step.

    Args:
      name: what the name of the file begins with.
      step: number of the step in its stage.
      metrics: metrics of its update.
      batch: arrays that it learned from.

    Raises:
      DivergedError: at the last of `limit` steps in a row with a skipped update.
    """
    if not metrics["update/skipped"]:
      self._in_a_row = 0
      return
    self._in_a_row += 1
    values = {x: metrics[x] for x in _WATCHED if x in metrics}
    bad = [f"{x} is {value}" for x, value in values.items() if not math.isfinite(value)]
    what = " and ".join(bad) or "a parameter would not be finite"
    path = self._folder / f"{name}-{step:06}.npz"
    arrays = fetch(batch)
    kept = on_writer(lambda: self._keep(path, arrays))
    warnings.warn(
      f"{what} at step {step}: the update was skipped. Its batch is {kept}",
      SkippedUpdateWarning,
      stacklevel=2,
    )
    if self._in_a_row >= self._limit:
      last = self._last_checkpoint()
      raise DivergedError(
        f"{what} at step {step}, the last of {self._in_a_row} steps in a row whose updates "
        f"were skipped. The last good checkpoint is {'none' if last is None else last}, "
        f"and the batches are in {self._folder}. Lower the learning rate in another "
        "workdir, or raise max_skipped to go on"
      )

  def _keep(self, path: Path, batch: PyTree) -> str:
    """Writes a batch; returns where it is, or why it is not."""
    arrays = {
      jax.tree_util.keystr(key, simple=True, separator="."): x
      for key, x in jax.tree_util.tree_leaves_with_path(batch)
    }
    try:
      path.parent.mkdir(exist_ok=True)
      np.savez_compressed(path, **arrays)
    except OSError as error:
      with contextlib.suppress(OSError):
        path.unlink()  # half of it
      return f"lost, because {path} can't be written: {error.strerror}"
    by_age = sorted(path.parent.glob("*.npz"), key=lambda file: file.stat().st_mtime_ns)
    for old in by_age[:-_KEPT]:
      old.unlink()
    return f"in {path}"


def check_sampler(metrics: Mapping[str, float]) -> None:
  """Warns, once in a process, if sampler and trainer disagree on probabilities.

  Before the first optimizer step of an update, the ratio of the trainer's probability of a
  token to the sampler's is 1 up to rounding. If it is not, the gradient is biased; a
  `sampler_correction` in the algorithm compensates for part of it.

  Args:
    metrics: metrics of a step. Without probabilities of a sampler, or with an older
      policy, nothing is checked.
  """
  older = metrics.get("rollout/lag") or metrics.get("rollout/stored")
  if "ratio/sampler_error" not in metrics or older:
    return
  errors = abs(metrics["ratio/first_step"] - 1), metrics["ratio/sampler_error"]
  if max(errors) > _SAMPLER_TOLERANCE:
    warnings.warn(  # without the numbers, because Python shows the same text once
      "sampler and trainer disagree on the probabilities of the sampled tokens: "
      "ratio/first_step differs from 1, or ratio/sampler_error from 0, by more than "
      f"{_SAMPLER_TOLERANCE} (see metrics.jsonl)",
      SamplerMismatchWarning,
      stacklevel=2,
    )


def check_lag(lag: int, algorithm: Algorithm) -> None:
  """Warns if rollouts are older than the policy, and nothing corrects for it.

  Args:
    lag: number of steps between drawing a rollout and learning from it.
    algorithm: the algorithm.
  """
  if lag and algorithm.sampler_correction is None:
    warnings.warn(
      f"sampling.lag is {lag}, and the algorithm has no sampler_correction: completions of "
      "an older policy are learned from as if they were this one's. Set "
      "policy_update.importance_cap, to 2 for instance",
      UncorrectedLagWarning,
      stacklevel=2,
    )
