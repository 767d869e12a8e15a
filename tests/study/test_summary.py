"""Summaries over seeds."""

import numpy as np
import pytest

from pgax.study import Study, over_seeds, steps_of, summarize

METRICS = {
  "eval/accuracy": np.array([[[0.0, 0.5, 1.0], [0.0, 0.0, 0.5]]]),
  "reward/mean": np.ones((1, 2, 4)),
  "time/run": np.array([[2.0, 4.0]]),
}
STUDY = Study(("one",), (0, 1), METRICS, eval_every=2)


def test_a_summary():
  (found,) = summarize(STUDY, "eval/accuracy", goal=0.5).values()
  assert found.final.mean == pytest.approx(0.75)
  assert (found.final.low, found.final.high) == pytest.approx((0.5, 1.0))
  assert found.area.mean == pytest.approx((0.5 + 0.125) / 2)
  assert found.goal_step.mean == pytest.approx(3)  # steps 2 and 4
  assert (found.reached, found.seconds) == (2, 3.0)
  (later,) = summarize(STUDY, "eval/accuracy", goal=0.8).values()
  assert (later.goal_step.mean, later.reached) == (4.0, 1)
  (never,) = summarize(STUDY, "eval/accuracy", goal=2).values()
  assert np.isnan(never.goal_step.mean) and never.reached == 0


def test_steps():
  assert steps_of(STUDY, "eval/accuracy").tolist() == [0, 2, 4]
  assert steps_of(STUDY, "reward/mean").tolist() == [1, 2, 3, 4]


def test_intervals_cover_the_mean():
  values = np.random.default_rng(0).normal(size=(200, 12))
  found = over_seeds(values)
  covers = (found.low <= 0) & (found.high >= 0)
  assert 0.85 < covers.mean() < 0.99
