"""The loss of preference pairs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pgax.ops.preferences import bradley_terry
from tests import references

CHOSEN, REJECTED = np.random.default_rng(0).normal(0, 3, (2, 5, 4))


def test_against_the_formula():
  result = bradley_terry(CHOSEN, REJECTED)
  pairs = zip(CHOSEN.flat, REJECTED.flat, strict=True)
  expected = [references.bradley_terry(*pair) for pair in pairs]
  np.testing.assert_allclose(np.asarray(result).ravel(), expected, rtol=1e-5)
  assert result.dtype == jnp.float32
  # A constant added to both changes nothing.
  np.testing.assert_allclose(bradley_terry(CHOSEN + 7, REJECTED + 7), result, rtol=1e-4)


def test_gradient_and_extremes():
  slope = jax.grad(lambda x: bradley_terry(x, jnp.float32(0)))
  for margin in (-500.0, -1.0, 0.0, 2.0, 500.0):
    expected = -1 / (1 + np.exp(np.float64(min(margin, 300))))
    assert slope(jnp.float32(margin)) == pytest.approx(expected, rel=1e-5, abs=1e-30)
  np.testing.assert_allclose(
    bradley_terry(np.array([-500.0, 500.0, 0.0]), np.zeros(3)), [500, 0, np.log(2)]
  )
  with pytest.raises(AssertionError, match="shape"):
    bradley_terry(np.zeros(2), np.zeros(3))
