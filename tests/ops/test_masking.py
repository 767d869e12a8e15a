"""Masked reductions: padding reaches neither the value nor the gradient."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

from pgax import masking
from tests.strategies import TOKENS, floats, masks


@given(floats(TOKENS), masks())
def test_padding_never_matters(x, mask):
  for poison in (np.nan, np.inf, -np.inf):
    poisoned = np.where(mask, x, poison)
    assert masking.masked_sum(poisoned, mask) == pytest.approx(x[mask].sum(), abs=1e-3)
    gradient = jax.grad(
      lambda v: masking.masked_mean(jnp.square(masking.select(v, mask)), mask)
    )(jnp.asarray(poisoned))
    expected = np.where(mask, 2 * x / max(mask.sum(), 1), 0)
    np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-6)


def test_select_blocks_the_gradient():
  def value(x):
    return jnp.sum(jnp.log(masking.select(x, np.array([True, False]), fill=1.0)))

  np.testing.assert_allclose(jax.grad(value)(jnp.array([2.0, 0.0])), [0.5, 0.0])


def test_axis_and_empty():
  x, mask = np.arange(6.0).reshape(2, 3), np.array([[1, 1, 0], [0, 0, 0]])
  np.testing.assert_allclose(masking.masked_mean(x, mask, axis=-1), [0.5, 0.0])
  np.testing.assert_allclose(masking.masked_sum(x, mask, axis=0), [0, 1, 0])
  np.testing.assert_allclose(masking.lengths(mask), [2, 0])
  with pytest.raises(AssertionError):
    masking.masked_sum(x, mask[0])
