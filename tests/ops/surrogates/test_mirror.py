"""Mirror descent: plain references with derivatives, and its optimum."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

from pgax import kl, surrogates
from tests import references
from tests.ops.surrogates.losses import GROUP, STEP_SIZE, TAU, in_batch, plain_groups, slope
from tests.strategies import GROUPS, TOKENS, floats, masks

SIZE = (8,)


@given(floats(SIZE, -3, 0), floats(SIZE, -3, 0), floats(SIZE, -2, 2))
def test_mdpo_matches_reference(logp, old_logp, advantages):
  def ours(x):
    return surrogates.mdpo(x, old_logp, advantages, STEP_SIZE)

  tokens = zip(logp, old_logp, advantages, strict=True)
  pairs = [references.token_surrogate("mdpo", *map(float, token)) for token in tokens]
  loss, derivative = np.array(pairs).T
  np.testing.assert_allclose(ours(logp).loss, loss, rtol=1e-4, atol=1e-4)
  np.testing.assert_allclose(slope(ours, logp), derivative, rtol=1e-4, atol=1e-4)
  # The second term alone is never negative.
  penalty = surrogates.mdpo(logp, old_logp, np.zeros(SIZE), STEP_SIZE).loss
  assert np.all(np.asarray(penalty) >= -1e-6)


@given(floats(TOKENS, -1, 0), floats(TOKENS, -1, 0), floats(GROUPS, -2, 2), masks())
def test_mdpo_kimi_matches_reference(logp, old_logp, advantages, mask):
  value, gradient, _ = in_batch(GROUP["mdpo_kimi"], logp, old_logp, advantages, mask)
  expected = plain_groups(
    lambda *xs: references.mdpo_kimi(*xs, TAU), logp, old_logp, advantages, mask
  )
  np.testing.assert_allclose(value, expected[0], rtol=1e-3, atol=1e-4)
  np.testing.assert_allclose(gradient, expected[1], rtol=1e-3, atol=1e-4)


OLD = np.log([0.5, 0.3, 0.2])
ADVANTAGES = jnp.array([1.0, -0.5, 0.2])


def expected_mdpo(logits, step_size):
  """Expected loss of one token under the old policy."""
  logp = jax.nn.log_softmax(logits)
  return jnp.sum(np.exp(OLD) * surrogates.mdpo(logp, OLD, ADVANTAGES, step_size).loss)


def test_mdpo_is_the_proximal_problem():
  logits = jnp.array([0.4, -0.3, 0.1])

  def exact(x):
    p = jax.nn.softmax(x)
    return -jnp.sum(p * ADVANTAGES) + kl.exact(x, jnp.asarray(OLD, jnp.float32)) / STEP_SIZE

  ours, theirs = jax.value_and_grad(expected_mdpo)(logits, STEP_SIZE), exact(logits)
  assert ours[0] == pytest.approx(float(theirs), rel=1e-5)
  np.testing.assert_allclose(ours[1], jax.grad(exact)(logits), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("step_size", [0.2, 3.0])
def test_mdpo_is_least_where_the_old_policy_is_tilted_by_the_advantage(step_size):
  tilted = jnp.asarray(OLD, jnp.float32) + step_size * ADVANTAGES
  gradient = jax.grad(expected_mdpo)(tilted, step_size)
  np.testing.assert_allclose(gradient, 0, atol=1e-6)


def test_mdpo_kimi_by_hand():
  # Rewards 1, 0 and one without tokens: advantages .5, -.5. Log-ratios .2, -.4; tau .5.
  logp = np.array([[[-1.0, -0.8], [-1.4, np.nan], [np.nan, np.nan]]])
  old_logp = np.array([[[-1.0, -1.0], [-1.0, 0.0], [0.0, 0.0]]])
  mask = np.array([[[1, 1], [1, 0], [0, 0]]])
  advantages = np.array([[0.5, -0.5, np.nan]])
  result = surrogates.mdpo_kimi(logp, old_logp, advantages, mask, 0.5).loss
  first, second = (0.5 - 0.1) ** 2, (-0.5 + 0.2) ** 2
  np.testing.assert_allclose(result, [[[first, first], [second, 0], [0, 0]]], rtol=1e-5)


def test_a_step_size_may_be_traced():
  x = jnp.full((1, 2, 3), -0.5)
  for function, data in (
    (surrogates.mdpo, (x - 0.1, x)),
    (surrogates.mdpo_kimi, (x - 0.1, jnp.ones((1, 2)), x < 0)),
  ):
    traced = jax.jit(function)(x, *data, 0.3).loss
    np.testing.assert_allclose(traced, function(x, *data, 0.3).loss, rtol=1e-6)


@pytest.mark.parametrize("value", [0.0, -1, float("nan"), np.float32(-2)])
def test_bad_settings(value):
  x = jnp.zeros((1, 1, 1))
  with pytest.raises(ValueError, match=f"step_size is {value}; it must be positive"):
    surrogates.mdpo(x, x, x, value)
  with pytest.raises(ValueError, match=f"tau is {value}; it must be positive"):
    surrogates.mdpo_kimi(x, x, x[0], x, value)
