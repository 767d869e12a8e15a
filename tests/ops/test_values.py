"""Losses of the critic, and their gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

from pgax import values
from tests.strategies import floats

SIZE = (6,)


def plain(value, old, target, clip):
  """The clipped loss of one token and its derivative."""
  near = old + min(max(value - old, -clip), clip)
  far_loss, near_loss = (value - target) ** 2, (near - target) ** 2
  if far_loss >= near_loss:
    return far_loss / 2, value - target
  return near_loss / 2, near - target if abs(value - old) < clip else 0.0


@given(floats(SIZE), floats(SIZE), floats(SIZE))
def test_matches_reference(value, old, target):
  for clip in (0.2, 1.0):
    loss, slope = np.array(
      [plain(*map(float, xs), clip) for xs in zip(value, old, target, strict=True)]
    ).T
    result = values.value_loss(value, old, target, clip)
    np.testing.assert_allclose(result, loss, rtol=1e-3, atol=1e-3)
    gradient = jax.grad(lambda v, c=clip: values.value_loss(v, old, target, c).sum())(value)
    # Where both branches are equal, or at the clip's corner, a subgradient is as good.
    near = old + np.clip(value - old, -clip, clip)
    smooth = np.abs((value - target) ** 2 - (near - target) ** 2) > 1e-3
    smooth |= np.abs(value - old) < clip - 1e-3
    np.testing.assert_allclose(gradient[smooth], slope[smooth], rtol=1e-3, atol=1e-3)


def test_without_a_limit():
  result = values.value_loss(
    jnp.array([3.0]), jnp.array([0.0]), jnp.array([1.0]), clip=None
  )
  assert result[0] == 2.0
  limited = values.value_loss(jnp.array([0.9]), jnp.array([0.0]), jnp.array([1.0]))
  assert limited[0] == pytest.approx(0.32)  # as if it were at 0.2 still


@given(floats(SIZE, -9, 9), floats(SIZE, 0, 1))
def test_binary_matches_reference(logits, target):
  p = 1 / (1 + np.exp(-logits.astype(np.float64)))
  expected = -(target * np.log(p) + (1 - target) * np.log(1 - p))
  np.testing.assert_allclose(
    values.binary_value_loss(logits, target), expected, rtol=1e-4, atol=1e-5
  )
  gradient = jax.grad(lambda x: values.binary_value_loss(x, target).sum())(logits)
  np.testing.assert_allclose(gradient, p - target, rtol=1e-3, atol=1e-5)


def test_extremes_and_data():
  assert np.isfinite(values.binary_value_loss(jnp.array([-1e4]), jnp.array([1.0]))[0])
  for gradient in jax.grad(
    lambda old, target: values.value_loss(jnp.ones(2), old, target).sum(), argnums=(0, 1)
  )(jnp.zeros(2), jnp.zeros(2)):
    assert np.all(np.asarray(gradient) == 0)
  with pytest.raises(ValueError, match="clip is -1"):
    values.value_loss(jnp.ones(1), jnp.ones(1), jnp.ones(1), clip=-1)


def test_binary_loss_has_a_lower_bound_for_any_targets():
  logits = jnp.array([-1000.0, -10.0, 10.0, 1000.0])
  for target, clipped in ((-0.2, 0.0), (1.3, 1.0)):
    result = values.binary_value_loss(logits, jnp.full(4, target))
    expected = values.binary_value_loss(logits, jnp.full(4, clipped))
    np.testing.assert_array_equal(result, expected)
    assert np.all(np.asarray(result) >= 0)
