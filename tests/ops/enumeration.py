"""A policy so small that an expectation is a sum over everything that could be sampled.

A tiny policy: two tokens from a vocabulary of three, the second after the first. The nine
completions have fixed rewards. The exact gradient of the expected reward is that of one sum
over nine; the expected gradient of an estimator is a sum over all groups of completions.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np

from pgax import aggregation, surrogates

COMPLETIONS = np.array(list(itertools.product(range(3), repeat=2)))  # [9, 2]
REWARDS = jnp.asarray(np.random.default_rng(0).normal(size=9), jnp.float32)
RIGHT = jnp.asarray([1, 0, 0, 1, 0, 1, 0, 0, 0], jnp.float32)  # binary rewards


def random_logits(seed):
  """Logits of the policy: of the first token, and of the second after each first one."""
  rng = np.random.default_rng(seed)
  shapes = {"first": 3, "second": (3, 3)}
  return {k: jnp.asarray(rng.normal(size=n), jnp.float32) for k, n in shapes.items()}


LOGITS, REF_LOGITS = random_logits(1), random_logits(2)
GROUP = 3
GROUPS = np.array(list(itertools.product(range(9), repeat=GROUP)))  # [729, 3]
BETA = 0.3


def token_logp(logits):
  """Log-probabilities of the tokens of every completion, `[9, 2]`."""
  first = jax.nn.log_softmax(logits["first"])[COMPLETIONS[:, 0]]
  table = jax.nn.log_softmax(logits["second"], axis=-1)
  return jnp.stack([first, table[COMPLETIONS[:, 0], COMPLETIONS[:, 1]]], axis=-1)


def probability(logits):
  """Probabilities of the completions, `[9]`."""
  return jnp.exp(token_logp(logits).sum(-1))


REF_LOGP = token_logp(REF_LOGITS)
# The penalty in the reward of each completion: k1, summed, as data.
PENALTY = (token_logp(LOGITS) - REF_LOGP).sum(-1)


def exact_gradient(rewards=REWARDS, beta=0.0):
  """Gradient of the expected reward minus `beta * KL(policy || reference)`."""

  def objective(logits):
    p = probability(logits)
    divergence = jnp.sum(p * (token_logp(logits) - REF_LOGP).sum(-1))
    return jnp.sum(p * rewards) - beta * divergence

  return jax.grad(objective)(LOGITS)


def expected_gradient(loss, rewards=REWARDS):
  """Expectation over all groups of minus the gradient of the loss.

  `loss(logp, old_logp, ref_logp, rewards)` gives a number for each of the groups, from
  `[729, G, 2]` log-probabilities and `[729, G]` rewards.
  """
  weight = jnp.prod(probability(LOGITS)[GROUPS], axis=-1)  # [729]

  def total(logits):
    logp = token_logp(logits)[GROUPS]
    old_logp = jax.lax.stop_gradient(logp)
    return jnp.sum(weight * loss(logp, old_logp, REF_LOGP[GROUPS], rewards[GROUPS]))

  return jax.tree.map(jnp.negative, jax.jit(jax.grad(total))(LOGITS))


MASK = jnp.ones((GROUP, 2), bool)


def by_tokens(advantage, surrogate):
  """A token surrogate under the weights that make up log-probabilities of completions."""

  def loss(logp, old_logp, ref_logp, rewards):
    del ref_logp
    tokens = jnp.broadcast_to(advantage(rewards)[..., None], logp.shape)
    terms = surrogate(logp, old_logp, tokens).loss
    return jnp.sum(aggregation.sequence_sum(MASK) * terms, axis=(-1, -2))

  return loss


def by_groups(surrogate):
  """A loss of completions, `surrogate(logp, old_logp, ref_logp, rewards, mask)`."""

  def loss(logp, old_logp, ref_logp, rewards):
    mask = jnp.ones(logp.shape, bool)
    terms = surrogate(logp, old_logp, ref_logp, rewards, mask).loss
    return jnp.sum(aggregation.sequence_mean(MASK) * terms, axis=(-1, -2))

  return loss


def flat(tree):
  """All entries of a gradient."""
  return np.concatenate([np.ravel(x) for x in jax.tree.leaves(tree)])


def assert_same(ours, theirs, factor=1.0):
  """Two gradients are equal up to a factor."""
  np.testing.assert_allclose(flat(ours), factor * flat(theirs), rtol=1e-4, atol=2e-6)


def policy_gradient(logp, old_logp, tokens):
  """The policy gradient, called as the surrogates with a ratio are."""
  del old_logp
  return surrogates.policy_gradient(logp, tokens)
