"""Expected gradients of estimators against exact ones, by enumeration."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pgax import advantages, aggregation, kl, returns, surrogates
from tests.ops.enumeration import (
  BETA,
  COMPLETIONS,
  GROUP,
  LOGITS,
  MASK,
  PENALTY,
  REF_LOGITS,
  REWARDS,
  RIGHT,
  assert_same,
  by_groups,
  by_tokens,
  exact_gradient,
  expected_gradient,
  flat,
  policy_gradient,
  probability,
  token_logp,
)


def mdpo(logp, old_logp, tokens):
  return surrogates.mdpo(logp, old_logp, tokens, 0.5)


def greedy_reward(rewards):
  return jnp.full(rewards.shape[:-1], REWARDS[jnp.argmax(token_logp(LOGITS).sum(-1))])


# A baseline that includes the own reward scales the expected gradient by (G - 1) / G.
SHRUNK = (GROUP - 1) / GROUP


@pytest.mark.parametrize(
  "surrogate",
  [policy_gradient, surrogates.unclipped, surrogates.clipped, surrogates.sapo, mdpo],
)
@pytest.mark.parametrize(
  ("advantage", "factor"),
  [
    (lambda r: r, 1.0),
    (advantages.rloo, 1.0),
    (lambda r: advantages.remax(r, greedy_reward(r)), 1.0),
    (lambda r: r - 0.7, 1.0),
    (advantages.dr_grpo, SHRUNK),
  ],
  ids=["reinforce", "rloo", "remax", "moving_average", "dr_grpo"],
)
def test_expected_gradient_is_exact_up_to_its_factor(advantage, factor, surrogate):
  assert_same(expected_gradient(by_tokens(advantage, surrogate)), exact_gradient(), factor)


@pytest.mark.parametrize(
  ("surrogate", "factor"),
  [
    (lambda x, old, ref, r, m: surrogates.p3o(x, old, r, m), 1.0),
    (lambda x, old, ref, r, m: surrogates.p3o(x, old, r, m, form="joint"), 1.0),
    (
      lambda x, old, ref, r, m: surrogates.mdpo_kimi(x, old, advantages.dr_grpo(r), m, 0.5),
      SHRUNK,
    ),
    (
      lambda x, old, ref, r, m: surrogates.mdpo_kimi(x, old, advantages.rloo(r), m, 0.5),
      1.0,
    ),
  ],
  ids=["p3o", "p3o_joint", "mdpo_kimi", "mdpo_kimi_leave_one_out"],
)
def test_losses_of_completions_are_exact_up_to_their_factor(surrogate, factor):
  assert_same(expected_gradient(by_groups(surrogate)), exact_gradient(), factor)


def test_the_total_return_has_the_expectation_of_the_reward_to_go():
  # Rewards of tokens: what comes before an action does not depend on it.
  first, second = np.random.default_rng(3).normal(size=(2, 9))
  token_rewards = np.stack([first[COMPLETIONS[:, 0]], second], axis=-1)
  token_rewards = jnp.asarray(token_rewards, jnp.float32)
  mask = jnp.ones((9, 2), bool)

  def gradient(weights):
    def objective(logits):
      return jnp.sum(probability(LOGITS)[:, None] * weights * token_logp(logits))

    return jax.grad(objective)(LOGITS)

  exact = exact_gradient(token_rewards.sum(-1))
  total = returns.total_return(token_rewards, mask)
  to_go = returns.discounted_returns(token_rewards, mask)
  assert np.abs(np.asarray(total - to_go)).max() > 0.1
  assert_same(gradient(total), exact)
  assert_same(gradient(to_go), exact)
  discounted = returns.total_return(token_rewards, mask, 0.5)
  np.testing.assert_allclose(
    discounted, (token_rewards @ jnp.array([[1.0, 1.0], [0.5, 0.5]])), rtol=1e-6
  )


def test_copg_is_twice_the_gradient_of_reward_less_divergence():
  # The gradient of the penalty itself has mean 0, so only its value in the reward counts.
  ours = expected_gradient(
    by_groups(lambda x, old, ref, r, m: surrogates.copg(x, ref, r, m, BETA))
  )
  assert_same(ours, exact_gradient(beta=BETA), 2.0)


@pytest.mark.parametrize(
  "loss",
  [
    by_tokens(advantages.rloo, policy_gradient),
    by_groups(lambda x, old, ref, r, m: surrogates.p3o(x, old, r, m)),
  ],
  ids=["rloo", "p3o"],
)
def test_k1_in_the_reward_is_the_divergence_in_the_objective(loss):
  ours = expected_gradient(loss, REWARDS - BETA * PENALTY)
  assert_same(ours, exact_gradient(beta=BETA))


@pytest.mark.parametrize(
  ("estimator", "divergence"),
  [
    (kl.k1, lambda p, q: 0 * kl.exact(p, q)),
    (kl.k2, kl.exact),
    (kl.k3, lambda p, q: kl.exact(q, p)),
  ],
  ids=["k1", "k2", "k3"],
)
def test_divergence_in_the_loss(estimator, divergence):
  def loss(logp, old_logp, ref_logp, rewards):
    terms = BETA * estimator(logp, ref_logp)
    penalty = jnp.sum(aggregation.sequence_sum(MASK) * terms, axis=(-1, -2))
    plain = by_tokens(advantages.rloo, policy_gradient)
    return plain(logp, old_logp, ref_logp, rewards) + penalty

  def exact_penalty(logits):
    """Sum over both tokens, each in the contexts that the current policy reaches."""
    total = divergence(logits["first"], REF_LOGITS["first"])
    contexts = jax.nn.softmax(LOGITS["first"])
    return total + jnp.sum(contexts * divergence(logits["second"], REF_LOGITS["second"]))

  pull = jax.grad(exact_penalty)(LOGITS)
  expected = jax.tree.map(lambda g, d: g - BETA * d, exact_gradient(), pull)
  assert_same(expected_gradient(loss), expected)


def test_grpo_is_not_the_gradient_of_the_reward():
  # Dividing by the deviation of the group reweighs the prompts: no factor relates the two.
  ours = flat(expected_gradient(by_tokens(advantages.grpo, policy_gradient)))
  theirs = flat(exact_gradient())
  cosine = ours @ theirs / np.linalg.norm(ours) / np.linalg.norm(theirs)
  assert 0.8 < cosine < 0.9999


def grpo_factor(p, size):
  """`E sqrt(k (G - k)) / G / (p (1 - p))`, with `k` of `G` correct, binomial."""
  mean = sum(
    math.comb(size, k) * p**k * (1 - p) ** (size - k) * math.sqrt(k * (size - k)) / size
    for k in range(size + 1)
  )
  return mean / (p * (1 - p))


def test_grpo_with_binary_rewards_is_the_gradient_of_the_reward_times_a_known_factor():
  p = float(jnp.sum(probability(LOGITS) * RIGHT))
  grpo = functools.partial(advantages.grpo, eps=0.0)
  ours = expected_gradient(by_tokens(grpo, policy_gradient), RIGHT)
  assert_same(ours, exact_gradient(RIGHT), grpo_factor(p, GROUP))
  # In large groups it is 1 / sqrt(p (1 - p)): the gradient of 2 asin(sqrt(p)).
  assert grpo_factor(p, 900) == pytest.approx(1 / math.sqrt(p * (1 - p)), rel=1e-2)


def test_maxrl_with_binary_rewards_is_a_truncated_likelihood():
  # The gradient of sum_k -(1 - p)^k / k up to k = G - 1: of log p, in the limit.
  p = float(jnp.sum(probability(LOGITS) * RIGHT))
  ours = expected_gradient(by_tokens(advantages.maxrl, policy_gradient), RIGHT)
  factor = sum((1 - p) ** (k - 1) for k in range(1, GROUP))
  assert_same(ours, exact_gradient(RIGHT), factor)


def test_grpo_of_pairs_with_binary_rewards_is_dr_grpo_scaled():
  # Two completions, one right: deviation 1/2 always, so the division is by a constant.
  pair = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
  np.testing.assert_allclose(
    advantages.grpo(pair, eps=0.0), 2 * advantages.dr_grpo(pair), rtol=1e-6
  )
