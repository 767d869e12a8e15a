"""pass@k against every choice of k completions, and the interval of a mean."""

import itertools
import math

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgax.ops import evaluation
from tests.strategies import bools

GROUP = (3, 6)
pass_at_k = jax.jit(evaluation.pass_at_k, static_argnames="k")
bootstrap = jax.jit(evaluation.bootstrap, static_argnames="level")


@given(bools(GROUP), bools(GROUP), st.sampled_from([1, 2, 4, 6]))
def test_pass_at_k_is_the_fraction_of_choices_with_a_right_one(right, valid, k):
  result = pass_at_k(right, valid, k)
  for row, ok, value in zip(right, valid, result, strict=True):
    choices = [any(choice) for choice in itertools.combinations(row[ok], k)]
    expected = sum(choices) / len(choices) if choices else np.nan
    np.testing.assert_allclose(value, expected, rtol=1e-6)
  assert result.dtype == np.float32


def test_pass_at_k_of_many_completions_is_exact():
  n, counts = 2048, np.array([0, 1, 2, 7, 500, 1024, 2047, 2048])
  right = np.arange(n) < counts[:, None]
  for k in (1, 16, 1500):
    result = pass_at_k(right, np.ones_like(right), k)
    exact = [1 - math.comb(n - c, k) / math.comb(n, k) for c in counts.tolist()]
    np.testing.assert_allclose(result, exact, rtol=2e-4, atol=1e-6)
    # With none or all correct the result is exact.
    assert result[0] == 0 and result[-1] == 1


def test_pass_at_k_is_unbiased():
  """Over all outcomes of 4 completions, its mean is the chance `1 - (1 - p)^k`."""
  p, outcomes = 0.3, np.array(list(itertools.product([False, True], repeat=4)))
  chances = np.prod(np.where(outcomes, p, 1 - p), axis=-1)
  for k in (1, 2, 3, 4):
    result = pass_at_k(outcomes, np.ones_like(outcomes), k)
    assert chances @ result == pytest.approx(1 - (1 - p) ** k, rel=1e-6)


def test_pass_at_no_completion_is_rejected():
  with pytest.raises(ValueError, match="k is 0; it must be at least 1"):
    evaluation.pass_at_k(np.ones((1, 2), bool), np.ones((1, 2), bool), 0)


def test_the_interval_covers_the_mean_as_often_as_its_level():
  rng, size, trials = np.random.default_rng(0), 100, 400
  values = np.stack(
    [(rng.random((trials, size)) < 0.3), rng.exponential(0.3, (trials, size))]
  )
  for level, slack in ((0.95, 0.035), (0.5, 0.07)):
    result = bootstrap(values, jax.random.key(0), level)
    inside = np.mean((result.low <= 0.3) & (result.high >= 0.3), axis=-1)
    np.testing.assert_allclose(inside, level, atol=slack)
  np.testing.assert_allclose(result.mean, values.mean(-1), rtol=1e-5)


def test_interval_is_that_of_the_textbook():
  rng = np.random.default_rng(1)
  rows = rng.normal(5, 2, (4, 8)).astype(np.float32)
  result = bootstrap(rows, jax.random.key(0))
  for row, mean, low, high in zip(rows, *result, strict=True):
    means = rng.choice(row, (20_000, 8)).mean(-1)
    assert mean == pytest.approx(row.mean(), rel=1e-6)
    # With a thousand resamples a quantile's deviation is about 0.07 of the mean's.
    np.testing.assert_allclose(
      [low, high], np.quantile(means, [0.025, 0.975]), atol=0.25 * means.std()
    )


def test_what_is_left_out_plays_no_part():
  values = np.random.default_rng(2).random(5).astype(np.float32)
  rows = np.full((4, 8), np.nan)
  rows[0, :5] = rows[1, 3:] = rows[2, [0, 2, 3, 5, 7]] = values
  rows[2, 1] = np.inf
  result = bootstrap(rows, jax.random.key(0))
  np.testing.assert_allclose(result.mean[:3], values.mean(), rtol=1e-6)
  for end in result:
    assert end[0] == end[1] == end[2] and np.isnan(end[3])
  assert result.low[0] < result.mean[0] < result.high[0]


def test_equal_values_have_no_width():
  rows = np.full((4, 8), np.float32(0.1))
  rows[1, 1:] = rows[2, :-1] = np.nan  # one value, at either end
  rows[3, 2:4] = np.nan
  for end in bootstrap(rows, jax.random.key(0)):
    assert np.all(end == np.float32(0.1))


def test_no_problem_has_no_mean():
  result = evaluation.bootstrap(np.zeros((2, 0)), jax.random.key(0), resamples=2)
  assert all(x.shape == (2,) and np.isnan(x).all() for x in result)


def test_bad_settings_of_the_interval():
  for setting in ({"level": 1.0}, {"level": 0.0}, {"resamples": 0}):
    (name,) = setting
    with pytest.raises(ValueError, match=f"{name} is .*; it must be"):
      evaluation.bootstrap(np.zeros(3), jax.random.key(0), **setting)
