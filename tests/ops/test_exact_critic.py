"""Expected gradients with a critic: which values, at which lambda, leave them exact."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pgax import advantages, returns, surrogates
from tests.ops.enumeration import (
  COMPLETIONS,
  LOGITS,
  REWARDS,
  assert_same,
  exact_gradient,
  flat,
  policy_gradient,
  probability,
  token_logp,
)


def gae_gradient(values, lam, surrogate):
  """Expected gradient of one completion with token advantages from values `[9, 2]`."""
  mask = jnp.ones((9, 2), bool)
  rewards = advantages.at_last_token(REWARDS, mask)
  tokens = returns.gae(rewards, values, mask, lam=lam)

  def total(logits):
    logp = token_logp(logits)
    terms = surrogate(logp, jax.lax.stop_gradient(logp), tokens).loss
    return jnp.sum(probability(LOGITS)[:, None] * terms)

  return jax.tree.map(jnp.negative, jax.grad(total)(LOGITS))


def values_of_prefixes(start, after):
  """Value estimates before each token of every completion, `[9, 2]`."""
  first = jnp.full(9, start, jnp.float32)
  return jnp.stack([first, jnp.asarray(after, jnp.float32)[COMPLETIONS[:, 0]]], axis=-1)


ARBITRARY = values_of_prefixes(0.8, [-1.0, 2.0, 0.3])


@pytest.mark.parametrize("surrogate", [policy_gradient, surrogates.clipped])
def test_ppo_with_any_value_baseline_is_exact_at_lambda_one(surrogate):
  assert_same(gae_gradient(ARBITRARY, 1.0, surrogate), exact_gradient())


@pytest.mark.parametrize("lam", [0.0, 0.6, 1.0])
def test_ppo_with_the_true_values_is_exact_at_any_lambda(lam):
  second = jax.nn.softmax(LOGITS["second"], axis=-1)
  after = jnp.sum(second * REWARDS.reshape(3, 3), axis=-1)
  start = jnp.sum(jax.nn.softmax(LOGITS["first"]) * after)
  values = values_of_prefixes(start, after)
  assert_same(gae_gradient(values, lam, surrogates.clipped), exact_gradient())


def test_ppo_with_wrong_values_is_biased_below_lambda_one():
  ours = flat(gae_gradient(ARBITRARY, 0.5, surrogates.clipped))
  assert np.max(np.abs(ours - flat(exact_gradient()))) > 1e-2
