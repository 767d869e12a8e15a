"""Surrogates: a plain reference with its derivative, the clip's corners, extremes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgax import surrogates
from tests import references
from tests.strategies import floats

SIZE = (8,)


def _slope(function, logp):
  return jax.grad(lambda x: jnp.sum(function(x).loss))(jnp.asarray(logp))


@given(
  floats(SIZE, -3, 0),
  floats(SIZE, -3, 0),
  floats(SIZE, -2, 2),
  st.sampled_from([(0.2, 0.2, None), (0.2, 0.28, None), (0.0, 0.5, 3.0), (1.0, 0.1, 1.5)]),
)
def test_clipped_matches_reference(logp, old_logp, advantages, bounds):
  low, high, dual = bounds

  def ours(x):
    return surrogates.clipped(x, old_logp, advantages, low, high, dual)

  pairs = [
    references.clipped(*map(float, token), low, high, dual)
    for token in zip(logp, old_logp, advantages, strict=True)
  ]
  loss, slope = np.array(pairs).T
  np.testing.assert_allclose(ours(logp).loss, loss, rtol=1e-4, atol=1e-5)
  # At a corner either one-sided derivative is right; leave a hair's breadth around it.
  ratio = np.exp(logp.astype(np.float64) - old_logp)
  corners = [1 - low, 1 + high] + ([dual] if dual else [])
  smooth = np.all([np.abs(ratio - c) > 1e-4 for c in corners], axis=0)
  np.testing.assert_allclose(
    _slope(ours, logp)[smooth], slope[smooth], rtol=1e-4, atol=1e-5
  )
  acts = np.asarray(ours(logp).clipped)
  assert np.all(np.asarray(_slope(ours, logp))[acts] == 0)


@pytest.mark.parametrize(
  ("advantage", "ratio", "acts"),
  [
    (1.0, 1.3, True),
    (1.0, 1.1, False),
    (1.0, 0.5, False),
    (-1.0, 0.5, True),
    (-1.0, 0.9, False),
    (-1.0, 1.3, False),
    (0.0, 1.3, False),
  ],
)
def test_when_the_clip_acts(advantage, ratio, acts):
  one = jnp.log(jnp.array([ratio]))
  found = surrogates.clipped(one, jnp.zeros(1), jnp.array([advantage]))
  assert bool(found.clipped[0]) == acts
  slope = _slope(lambda x: surrogates.clipped(x, jnp.zeros(1), jnp.array([advantage])), one)
  expected = 0.0 if acts else -advantage * ratio
  assert slope[0] == pytest.approx(expected, rel=1e-5)


def test_clip_higher_moves_one_bound_only():
  logp, zeros = jnp.log(jnp.array([1.25, 0.75])), jnp.zeros(2)
  advantages = jnp.array([1.0, -1.0])
  assert surrogates.clipped(logp, zeros, advantages).clipped.tolist() == [True, True]
  higher = surrogates.clipped(logp, zeros, advantages, clip_high=0.28)
  assert higher.clipped.tolist() == [False, True]
  lower = surrogates.clipped(logp, zeros, advantages, clip_low=0.3)
  assert lower.clipped.tolist() == [True, False]


@given(floats(SIZE, -3, 0), floats(SIZE, -2, 2))
def test_at_ratio_one_it_is_the_policy_gradient(logp, advantages):
  clipped = _slope(lambda x: surrogates.clipped(x, logp, advantages), logp)
  plain = _slope(lambda x: surrogates.policy_gradient(x, advantages), logp)
  np.testing.assert_allclose(clipped, plain, rtol=1e-6)
  np.testing.assert_allclose(plain, -advantages, rtol=1e-6)


@pytest.mark.parametrize("gap", [-1000.0, -50.0, 50.0, 1000.0])
@pytest.mark.parametrize("advantage", [-1.0, 1.0])
@pytest.mark.parametrize("dual_clip", [None, 3.0])
def test_extreme_log_ratios_are_finite(gap, advantage, dual_clip):
  def ours(x):
    return surrogates.clipped(x, jnp.zeros(1), jnp.array([advantage]), dual_clip=dual_clip)

  assert np.isfinite(ours(jnp.array([gap])).loss[0])
  assert np.isfinite(_slope(ours, jnp.array([gap]))[0])


def test_no_gradient_into_data():
  def total(old_logp, advantages):
    first = surrogates.clipped(jnp.zeros(2), old_logp, advantages).loss
    return jnp.sum(first + surrogates.policy_gradient(jnp.ones(2), advantages).loss)

  for gradient in jax.grad(total, argnums=(0, 1))(jnp.full(2, 0.1), jnp.ones(2)):
    assert np.all(np.asarray(gradient) == 0)


@pytest.mark.parametrize(
  ("options", "told"),
  [
    ({"clip_low": -0.1}, "clip_low is -0.1"),
    ({"clip_low": 1.5}, "clip_low is 1.5"),
    ({"clip_high": -1}, "clip_high is -1"),
    ({"clip_high": float("nan")}, "clip_high is nan"),
    ({"dual_clip": float("nan")}, "dual_clip is nan"),
    ({"dual_clip": 1.0}, "dual_clip is 1.0"),
  ],
)
def test_bad_bounds(options, told):
  with pytest.raises(ValueError, match=told):
    surrogates.clipped(jnp.zeros(1), jnp.zeros(1), jnp.zeros(1), **options)


def test_shapes_are_checked():
  with pytest.raises(AssertionError):
    surrogates.policy_gradient(jnp.zeros((2, 3)), jnp.zeros((2, 1)))
  with pytest.raises(AssertionError):
    surrogates.clipped(jnp.zeros((2, 3)), jnp.zeros(3), jnp.zeros((2, 3)))
