"""Returns and advantages with tokens between the actions that are no actions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgax import advantages, returns
from tests.strategies import GROUPS, TOKENS, bools, floats
from tests.strategies import rewards as reward_arrays

CLOSE = {"rtol": 1e-4, "atol": 1e-4}
discounts = st.sampled_from([0.0, 0.5, 0.9, 1.0])


def on_actions(mask, plain):
  """Applies `plain(index, actions)` to the actions of each sequence; 0 elsewhere."""
  out = np.zeros(mask.shape)
  for index in np.ndindex(*mask.shape[:-1]):
    actions = np.flatnonzero(mask[index])
    out[index][actions] = plain(index, actions)
  return out


def plain_returns(rewards, discount):
  """Reward to go of a list of rewards."""
  return [
    sum(discount ** (k - t) * rewards[k] for k in range(t, len(rewards)))
    for t in range(len(rewards))
  ]


def plain_n_step(rewards, values, n, discount, bootstrap):
  """N-step advantages of a list of rewards and values."""
  values = [*values, bootstrap]
  out = []
  for t in range(len(rewards)):
    steps = min(n, len(rewards) - t)
    total = sum(discount**k * rewards[t + k] for k in range(steps))
    out.append(total + discount**steps * values[t + steps] - values[t])
  return out


def plain_gae(rewards, values, discount, lam, bootstrap):
  """GAE of a list of rewards and values."""
  deltas = plain_n_step(rewards, values, 1, discount, bootstrap)
  return plain_returns(deltas, discount * lam)


@given(
  floats(TOKENS), floats(TOKENS), bools(TOKENS), discounts, discounts, st.integers(1, 6)
)
def test_the_successor_of_an_action_is_the_next_action(
  rewards, values, mask, discount, lam, n
):
  r, v = (np.where(mask, x, np.nan) for x in (rewards, values))
  pairs = [
    (
      returns.discounted_returns(r, mask, discount),
      lambda i, at: plain_returns(rewards[i][at], discount),
    ),
    (
      returns.td_errors(r, v, mask, discount, 2.0),
      lambda i, at: plain_n_step(rewards[i][at], values[i][at], 1, discount, 2.0),
    ),
    (
      returns.n_step_advantages(r, v, mask, n, discount, 2.0),
      lambda i, at: plain_n_step(rewards[i][at], values[i][at], n, discount, 2.0),
    ),
    (
      returns.gae(r, v, mask, discount, lam, 2.0),
      lambda i, at: plain_gae(rewards[i][at], values[i][at], discount, lam, 2.0),
    ),
  ]
  for actual, plain in pairs:
    np.testing.assert_allclose(actual, on_actions(mask, plain), **CLOSE)


def without_gaps(x, mask):
  """The actions of each sequence first, in their order; 0 after them."""
  out = np.zeros_like(x)
  for index in np.ndindex(*mask.shape[:-1]):
    out[index][: mask[index].sum()] = x[index][mask[index]]
  return out


@given(reward_arrays(), floats(TOKENS), bools(TOKENS), bools(GROUPS), st.booleans())
def test_reinforce_pp_ignores_gaps(rewards, token_kl, mask, valid, group_baseline):
  def call(token_kl, mask):
    return np.asarray(
      advantages.reinforce_pp(
        rewards, token_kl, mask, valid, 0.5, group_baseline, discount=0.9
      )
    )

  with_gaps = call(np.where(mask, token_kl, np.nan), mask)
  compact = call(without_gaps(token_kl, mask), without_gaps(mask, mask))
  np.testing.assert_allclose(without_gaps(with_gaps, mask), compact, **CLOSE)
  assert np.all(with_gaps[~mask] == 0)


@given(floats(GROUPS), bools(TOKENS))
def test_the_reward_goes_to_the_last_action(rewards, mask):
  at_last = np.asarray(advantages.at_last_token(rewards, mask))
  expected = on_actions(mask, lambda i, at: [0.0] * (len(at) - 1) + [rewards[i]][: len(at)])
  np.testing.assert_allclose(at_last, expected, rtol=1e-6)


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
def test_gaps_reach_neither_value_nor_gradient(poison):
  mask = np.array([[False, True, False, True], [True, False, False, False]])
  clean = jnp.where(mask, 0.7, 0.0)
  dirty = jnp.where(mask, 0.7, poison)

  def total(rewards, values):
    terms = (
      returns.gae(rewards, values, mask, 0.9, 0.8, 0.5),
      returns.n_step_advantages(rewards, values, mask, 2, 0.9),
      returns.discounted_returns(rewards, mask, 0.9),
      returns.lambda_returns(rewards, values, mask),
    )
    return sum(jnp.sum(jnp.square(x)) for x in terms)

  expected = jax.value_and_grad(total, argnums=(0, 1))(clean, clean)
  actual = jax.value_and_grad(total, argnums=(0, 1))(dirty, dirty)
  for one, two in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
    np.testing.assert_array_equal(one, two)
