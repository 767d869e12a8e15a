"""Correction weights: bounds, no gradient, and unbiased expectations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

from pgax import correction
from tests.strategies import TOKENS, floats, masks


@given(floats(TOKENS, -4, 0), floats(TOKENS, -4, 0), masks())
def test_matches_reference(old, drawn, mask):
  ratio = np.exp(old.astype(np.float64) - drawn)
  np.testing.assert_allclose(
    correction.truncated(old, drawn), np.minimum(ratio, 2), rtol=1e-4
  )
  np.testing.assert_allclose(
    correction.truncated(old, drawn, 3.0), np.minimum(ratio, 3), rtol=1e-4
  )
  edge = np.minimum(np.abs(ratio - 0.5), np.abs(ratio - 5)) < 1e-4
  expected = np.where((ratio >= 0.5) & (ratio <= 5), ratio, 0)
  np.testing.assert_allclose(
    correction.icepop(old, drawn)[~edge], expected[~edge], rtol=1e-4
  )
  ratio = np.exp(np.sum(np.where(mask, old.astype(np.float64) - drawn, 0), -1))
  expected = np.broadcast_to(np.minimum(ratio, 2)[..., None], TOKENS)
  poison = np.where(mask, 0, np.nan)
  result = correction.sequence(old + poison, drawn + poison, mask)
  np.testing.assert_allclose(result, expected, rtol=1e-3)


def test_truncation_alone_is_biased_and_the_full_weight_is_not():
  # Expectation under the sampler of weight * f is the expectation of f under the policy.
  drawn, policy = np.array([0.7, 0.2, 0.1]), np.array([0.5, 0.3, 0.2])
  f = np.array([1.0, -2.0, 4.0])
  for cap, equal in ((10.0, True), (1.2, False)):
    weights = correction.truncated(np.log(policy), np.log(drawn), cap)
    assert np.isclose(np.sum(drawn * weights * f), np.sum(policy * f), rtol=1e-5) == equal


def test_no_gradient_and_extremes():
  for function in (correction.truncated, correction.icepop):
    gradient = jax.grad(lambda x, f=function: f(x, jnp.zeros(3)).sum())(jnp.full(3, 0.1))
    assert np.all(np.asarray(gradient) == 0)
    assert np.all(np.isfinite(function(jnp.array([-1e3, 1e3]), jnp.zeros(2))))


def test_effective_sample_size():
  mask = np.array([1, 1, 1, 1, 0])
  assert correction.effective_sample_size(np.full(5, 3.0), mask) == pytest.approx(1)
  one = np.array([1.0, 0, 0, 0, np.nan])
  assert correction.effective_sample_size(one, mask) == pytest.approx(1 / 4)
  assert correction.effective_sample_size(one, np.zeros(5)) == 0


def test_bad_bounds():
  zero = jnp.zeros((1, 1))
  with pytest.raises(ValueError, match="cap is 0"):
    correction.truncated(zero, zero, 0)
  with pytest.raises(ValueError, match="cap is -1"):
    correction.sequence(zero, zero, zero, -1)
  with pytest.raises(ValueError, match="low is 2 and high is 1"):
    correction.icepop(zero, zero, 2, 1)
