"""TPO: the target is where steps end, and completions without a token are not in it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pgax import surrogates


def softmax(x):
  weights = np.exp(x - np.max(x))
  return weights / weights.sum()


def test_descent_ends_at_the_target():
  logp = jnp.log(jnp.array([[0.5], [0.2], [0.1], [0.2]]))
  scores, mask = jnp.array([1.0, -1.0, 2.0, 0.0]), jnp.ones((4, 1))
  loss = jax.jit(jax.grad(lambda x: surrogates.tpo(x, logp, scores, mask, 0.7).loss.mean()))
  x = logp
  for _ in range(400):
    x = x - 2.0 * loss(x)
  target = softmax(np.log([0.5, 0.2, 0.1, 0.2]) + np.array([1.0, -1.0, 2.0, 0.0]) / 0.7)
  np.testing.assert_allclose(softmax(np.asarray(x)[:, 0]), target, rtol=1e-3)


def test_a_completion_without_a_token_is_in_no_group():
  rng = np.random.default_rng(0)
  logp, old = rng.normal(-1, 0.3, (2, 2, 3, 4)).astype(np.float32)
  scores, mask = rng.normal(size=(2, 3)).astype(np.float32), np.ones((2, 3, 4), bool)
  mask[0, 2] = False
  whole = surrogates.tpo(logp, old, scores, mask)
  without = surrogates.tpo(logp[:1, :2], old[:1, :2], scores[:1, :2], mask[:1, :2])
  np.testing.assert_allclose(whole.loss[0, :2], without.loss[0], rtol=1e-6)
  assert not np.any(whole.loss[0, 2]) and not np.any(whole.clipped)


def test_equal_scores_at_ratio_one_have_no_gradient():
  logp = jnp.array([[-1.0, -2.0], [-0.5, -0.1]])
  slope = jax.grad(
    lambda x: surrogates.tpo(x, logp, jnp.zeros(2), jnp.ones((2, 2))).loss.sum()
  )
  np.testing.assert_allclose(slope(logp), 0, atol=1e-6)


def test_a_temperature_that_is_not_positive_is_rejected():
  with pytest.raises(ValueError, match=r"eta is 0.0; it must be positive"):
    surrogates.tpo(jnp.ones((2, 1)), jnp.ones((2, 1)), jnp.ones(2), jnp.ones((2, 1)), 0.0)
