"""Returns and critic-based advantages: plain loops, identities, padding, gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgax import returns
from tests.strategies import TOKENS, floats, masks

CLOSE = {"rtol": 1e-4, "atol": 1e-4}
discounts = st.sampled_from([0.0, 0.5, 0.9, 1.0])


def plain_returns(rewards, length, discount):
  """Reward to go of one sequence, by its definition."""
  return [
    sum(discount ** (k - t) * float(rewards[k]) for k in range(t, length))
    for t in range(length)
  ]


def plain_n_step(rewards, values, length, n, discount, bootstrap):
  """N-step advantages of one sequence, by their definition."""
  known = [float(v) for v in values[:length]] + [bootstrap]
  out = []
  for t in range(length):
    steps = min(n, length - t)
    total = sum(discount**k * float(rewards[t + k]) for k in range(steps))
    out.append(total + discount**steps * known[t + steps] - known[t])
  return out


def plain_gae(rewards, values, length, discount, lam, bootstrap):
  """GAE of one sequence, as the double sum of its definition."""
  deltas = plain_n_step(rewards, values, length, 1, discount, bootstrap)
  return [
    sum((discount * lam) ** (k - t) * deltas[k] for k in range(t, length))
    for t in range(length)
  ]


def each(mask, plain):
  """A plain formula of `(index, length)`, applied to every sequence of a mask."""
  out = np.zeros(mask.shape)
  for index in np.ndindex(*mask.shape[:-1]):
    length = int(mask[index].sum())
    out[index][:length] = plain(index, length)
  return out


@given(
  floats(TOKENS), floats(TOKENS), masks(), discounts, discounts, st.sampled_from([0.0, 2.0])
)
def test_matches_reference(rewards, values, mask, discount, lam, bootstrap):
  poison = np.where(mask, 0, np.nan)
  r, v = rewards + poison, values + poison
  np.testing.assert_allclose(
    returns.discounted_returns(r, mask, discount),
    each(mask, lambda i, n: plain_returns(rewards[i], n, discount)),
    **CLOSE,
  )
  np.testing.assert_allclose(
    returns.td_errors(r, v, mask, discount, bootstrap),
    each(mask, lambda i, n: plain_n_step(rewards[i], values[i], n, 1, discount, bootstrap)),
    **CLOSE,
  )
  np.testing.assert_allclose(
    returns.gae(r, v, mask, discount, lam, bootstrap),
    each(mask, lambda i, n: plain_gae(rewards[i], values[i], n, discount, lam, bootstrap)),
    **CLOSE,
  )


@pytest.mark.parametrize("n", [1, 2, 3, 5, 99])
@given(floats(TOKENS), floats(TOKENS), masks(), discounts)
def test_n_step_matches_reference(n, rewards, values, mask, discount):
  np.testing.assert_allclose(
    returns.n_step_advantages(rewards, values, mask, n, discount, 1.5),
    each(mask, lambda i, m: plain_n_step(rewards[i], values[i], m, n, discount, 1.5)),
    **CLOSE,
  )


@given(floats(TOKENS), floats(TOKENS), masks(), discounts)
def test_identities(rewards, values, mask, discount):
  delta = returns.td_errors(rewards, values, mask, discount)
  total = returns.discounted_returns(rewards, mask, discount)
  monte_carlo = np.where(mask, total - values, 0)

  def gae(lam):
    return returns.gae(rewards, values, mask, discount, lam)

  np.testing.assert_allclose(gae(0.0), delta, **CLOSE)
  np.testing.assert_allclose(gae(1.0), monte_carlo, **CLOSE)
  n_step = returns.n_step_advantages(rewards, values, mask, TOKENS[-1], discount)
  np.testing.assert_allclose(n_step, monte_carlo, **CLOSE)
  target = returns.lambda_returns(gae(1.0), values, mask)
  np.testing.assert_allclose(target, total, **CLOSE)


@given(floats(TOKENS), floats(TOKENS), floats(TOKENS), masks())
def test_gae_is_linear_in_rewards(one, two, values, mask):
  zeros = np.zeros_like(values)
  both = returns.gae(one + 2 * two, values, mask)
  apart = returns.gae(one, values, mask) + 2 * returns.gae(two, zeros, mask)
  np.testing.assert_allclose(both, apart, rtol=1e-3, atol=1e-3)


def test_settings_of_each_sequence():
  rng = np.random.default_rng(0)
  rewards, values = rng.normal(size=(2, 3, 4, 5)).astype(np.float32)
  mask = np.ones((3, 4, 5), bool)
  lam, discount = rng.random((2, 3, 4)).astype(np.float32)
  bootstrap = rng.normal(size=(3, 4)).astype(np.float32)
  together = returns.gae(rewards, values, mask, discount, lam, bootstrap)
  for i in np.ndindex(3, 4):
    alone = returns.gae(rewards[i], values[i], mask[i], discount[i], lam[i], bootstrap[i])
    np.testing.assert_allclose(together[i], alone, rtol=1e-5, atol=1e-6)
  with pytest.raises(
    ValueError, match=r"shape \(4,\); allowed are a scalar and .*\(3, 4\)"
  ):
    returns.gae(rewards, values, mask, lam=lam[0])


@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_padding_reaches_neither_value_nor_gradient(poison):
  mask = np.array([[True, True, False], [False, False, False]])
  bad = jnp.where(mask, 1.0, poison)

  def total(rewards, values):
    advantages = returns.gae(rewards, values, mask, 0.9, 0.8, 0.5)
    return jnp.sum(advantages + returns.n_step_advantages(rewards, values, mask, 2))

  for gradient in jax.grad(total, argnums=(0, 1))(bad, bad):
    assert np.all(np.isfinite(gradient)) and np.all(np.asarray(gradient)[~mask] == 0)
  wider = returns.gae(
    np.pad(np.ones((1, 2)), ((0, 0), (0, 4))), np.zeros((1, 6)), np.arange(6)[None] < 2
  )
  np.testing.assert_allclose(
    wider[:, :2], returns.gae(np.ones((1, 2)), np.zeros((1, 2)), np.ones((1, 2)))
  )


def test_jit_and_vmap():
  rng = np.random.default_rng(0)
  rewards, values = rng.normal(size=(2, 3, 4, 5)).astype(np.float32)
  mask = np.arange(5) < rng.integers(0, 6, (3, 4, 1))
  plain = returns.gae(rewards, values, mask)
  np.testing.assert_allclose(jax.jit(returns.gae)(rewards, values, mask), plain, rtol=1e-6)
  np.testing.assert_allclose(jax.vmap(returns.gae)(rewards, values, mask), plain, rtol=1e-6)


def test_length_adaptive_lambda():
  result = returns.length_adaptive_lambda(np.array([0, 1, 10, 20, 40, 2000]))
  np.testing.assert_allclose(result, [0, 0, 0, 0, 0.5, 0.99], atol=1e-6)
  assert returns.length_adaptive_lambda(np.array([40]), alpha=0.1)[0] == pytest.approx(0.75)


def test_bad_settings():
  ones = np.ones((1, 2))
  with pytest.raises(ValueError, match="n is 0"):
    returns.n_step_advantages(ones, ones, ones, 0)
  with pytest.raises(ValueError, match="alpha is 0"):
    returns.length_adaptive_lambda(ones, alpha=0.0)
  with pytest.raises(AssertionError):
    returns.gae(ones, ones[:, :1], ones)


@pytest.mark.parametrize("value", [-0.1, 1.1, 95.0, float("nan")])
def test_a_discount_or_lambda_out_of_range_is_rejected(value):
  x, mask = np.ones((1, 2)), np.ones((1, 2), bool)
  with pytest.raises(ValueError, match=f"discount is {value}; it must be in"):
    returns.discounted_returns(x, mask, value)
  with pytest.raises(ValueError, match=f"discount is {value}"):
    returns.n_step_advantages(x, x, mask, 1, value)
  with pytest.raises(ValueError, match=f"lam is {value}; it must be in"):
    returns.gae(x, x, mask, lam=value)
