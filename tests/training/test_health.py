"""Steps whose update was skipped: kept for inspection, and not too many in a row."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pgax import algorithms, surrogates
from pgax.data import byte_tokenizer
from pgax.runs.loggers import read_metrics
from pgax.training import train
from pgax.training.health import DivergedError, SkippedUpdates, SkippedUpdateWarning
from tests import tiny

BATCH = {"rollout": {"tokens": jnp.arange(6)}, "advantages": jnp.array([1.0, jnp.nan])}


def metrics(skipped=1, **values):
  return {"loss": 1.0, "grad_norm": float("inf"), "update/skipped": skipped} | values


def test_good_steps_leave_nothing(tmp_path):
  watch = SkippedUpdates(tmp_path, 1, lambda: None)
  watch.check("grpo", 1, metrics(skipped=0), BATCH)
  assert list(tmp_path.iterdir()) == []


def test_the_batch_is_kept_and_a_row_of_them_stops(tmp_path):
  watch = SkippedUpdates(tmp_path, 2, lambda: 40)
  with pytest.warns(SkippedUpdateWarning, match=r"grad_norm is inf at step 41: .* is in"):
    watch.check("grpo", 41, metrics(), BATCH)
  watch.check("grpo", 42, metrics(skipped=0), BATCH)  # starts anew
  with pytest.warns(SkippedUpdateWarning):
    watch.check("grpo", 43, metrics(), BATCH)
  message = r"loss is nan .* at step 44, the last of 2 steps .* checkpoint is 40"
  with (
    pytest.warns(SkippedUpdateWarning),
    pytest.raises(DivergedError, match=message),
  ):
    watch.check("grpo", 44, metrics(loss=float("nan")), BATCH)
  with np.load(tmp_path / "skipped" / "grpo-000041.npz") as kept:
    np.testing.assert_array_equal(kept["rollout.tokens"], np.arange(6))
    np.testing.assert_array_equal(kept["advantages"], [1.0, np.nan])


def test_the_latest_ten_are_kept(tmp_path):
  watch = SkippedUpdates(tmp_path, 100, lambda: None)
  for step in range(12):
    with pytest.warns(SkippedUpdateWarning):
      watch.check("x", step, metrics(), BATCH)
  names = sorted(path.stem for path in (tmp_path / "skipped").iterdir())
  assert names == [f"x-{step:06}" for step in range(2, 12)]


def test_a_batch_that_cannot_be_kept_does_not_stop_the_run(tmp_path):
  (tmp_path / "skipped").write_text("a file in the way")
  watch = SkippedUpdates(tmp_path, 2, lambda: None)
  with pytest.warns(SkippedUpdateWarning, match="Its batch is lost, because .* written"):
    watch.check("x", 1, metrics(), BATCH)


@dataclasses.dataclass(frozen=True)
class SometimesNan:
  """The policy gradient, which is nan where the sampled tokens have an even sum."""

  def __call__(self, logp, batch):
    even = jnp.sum(batch.tokens) % 2 == 0
    result = surrogates.policy_gradient(logp, batch.advantages)
    return result._replace(loss=result.loss * jnp.where(even, jnp.nan, 1))


def test_a_run_goes_on_after_bad_steps_and_is_the_same_when_resumed(tmp_path):
  algorithm = dataclasses.replace(algorithms.grpo(), surrogate=SometimesNan())

  def run(name, **changes):
    settings = {"steps": 6, "max_skipped": 6, "algorithm": algorithm} | changes
    config = tiny.run_config(**settings)
    with pytest.warns(SkippedUpdateWarning):
      return train(config, byte_tokenizer(), tmp_path / name, progress=False)

  whole = run("whole")
  rows = read_metrics(tmp_path / "whole")[1:]
  skipped = [row["step"] for row in rows if row.get("update/skipped")]
  assert whole.finished and 0 < len(skipped) < 6
  assert all((row["loss"] is None) == (row["step"] in skipped) for row in rows)
  assert len(list((tmp_path / "whole" / "skipped").iterdir())) == len(skipped)
  assert all(bool(jnp.all(jnp.isfinite(x))) for x in jax.tree.leaves(whole.state.params))

  run("parts", steps=3)
  parts = run("parts")
  for ours, theirs in zip(
    *(jax.tree.leaves(x.state.params) for x in (parts, whole)), strict=True
  ):
    np.testing.assert_array_equal(ours, theirs)
