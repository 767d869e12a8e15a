"""Expected gradients, by summing over everything that could be sampled.

A tiny policy: two tokens from a vocabulary of three, the second after the first. The nine
completions have fixed rewards. The exact gradient of the expected reward is that of one sum
over nine; the expected gradient of an estimator is a sum over all groups of completions.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pgax import advantages, aggregation, surrogates

COMPLETIONS = np.array(list(itertools.product(range(3), repeat=2)))  # [9, 2]
REWARDS = jnp.asarray(np.random.default_rng(0).normal(size=9), jnp.float32)
LOGITS = {
  "first": jnp.asarray(np.random.default_rng(1).normal(size=3), jnp.float32),
  "second": jnp.asarray(np.random.default_rng(2).normal(size=(3, 3)), jnp.float32),
}
GROUP = 3
GROUPS = np.array(list(itertools.product(range(9), repeat=GROUP)))  # [729, 3]


def token_logp(logits):
  """Log-probabilities of the tokens of every completion, `[9, 2]`."""
  first = jax.nn.log_softmax(logits["first"])[COMPLETIONS[:, 0]]
  table = jax.nn.log_softmax(logits["second"], axis=-1)
  return jnp.stack([first, table[COMPLETIONS[:, 0], COMPLETIONS[:, 1]]], axis=-1)


def exact_gradient():
  """Gradient of the expected reward."""
  return jax.grad(lambda x: jnp.sum(jnp.exp(token_logp(x).sum(-1)) * REWARDS))(LOGITS)


def expected_gradient(advantage, surrogate):
  """Expectation over all groups of minus the gradient of the loss."""
  probability = jnp.exp(token_logp(LOGITS).sum(-1))
  weight = jnp.prod(probability[GROUPS], axis=-1)  # [729]
  mask = jnp.ones((GROUP, 2), bool)

  def loss(logits):
    logp = token_logp(logits)[GROUPS]  # [729, G, 2]
    old = jax.lax.stop_gradient(logp)
    tokens = jnp.broadcast_to(advantage(REWARDS[GROUPS])[..., None], logp.shape)
    terms = surrogate(logp, old, tokens).loss
    per_group = jnp.sum(aggregation.sequence_sum(mask) * terms, axis=(-1, -2))
    return jnp.sum(weight * per_group)

  return jax.tree.map(jnp.negative, jax.grad(loss)(LOGITS))


def assert_same(ours, theirs, factor=1.0):
  for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
    np.testing.assert_allclose(a, factor * b, rtol=1e-4, atol=1e-6)


def policy_gradient(logp, old_logp, tokens):
  del old_logp
  return surrogates.policy_gradient(logp, tokens)


def greedy_reward(rewards):
  return jnp.full(rewards.shape[:-1], REWARDS[jnp.argmax(token_logp(LOGITS).sum(-1))])


# A baseline that contains the own reward scales the expected gradient by (G - 1) / G.
SHRUNK = (GROUP - 1) / GROUP


@pytest.mark.parametrize(
  "surrogate", [policy_gradient, surrogates.clipped, surrogates.sapo]
)
@pytest.mark.parametrize(
  ("advantage", "factor"),
  [
    (lambda r: r, 1.0),
    (advantages.rloo, 1.0),
    (lambda r: advantages.remax(r, greedy_reward(r)), 1.0),
    (advantages.dr_grpo, SHRUNK),
  ],
  ids=["reinforce", "rloo", "remax", "dr_grpo"],
)
def test_expected_gradient_is_exact_up_to_its_factor(advantage, factor, surrogate):
  assert_same(expected_gradient(advantage, surrogate), exact_gradient(), factor)


def test_grpo_is_not_the_gradient_of_the_reward():
  # Dividing by the deviation of the group weighs prompts anew: no factor makes up for it.
  ours = jax.tree.leaves(expected_gradient(advantages.grpo, policy_gradient))
  theirs = jax.tree.leaves(exact_gradient())
  ours, theirs = (np.concatenate([np.ravel(x) for x in tree]) for tree in (ours, theirs))
  cosine = ours @ theirs / np.linalg.norm(ours) / np.linalg.norm(theirs)
  assert 0.8 < cosine < 0.9999


def test_grpo_of_pairs_with_binary_rewards_is_dr_grpo_scaled():
  # Two completions, one right: deviation 1/2 always, so the division is by a constant.
  pair = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
  np.testing.assert_allclose(
    advantages.grpo(pair, eps=0.0), 2 * advantages.dr_grpo(pair), rtol=1e-6
  )
