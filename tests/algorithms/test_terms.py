"""Terms that can be added to any loss, each against an enumeration."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pgax import aggregation, algorithms, kl, logprobs
from pgax.algorithms import CriticSpec, EntropyBonus, UpdateConfig, parts
from pgax.ops.entropy import AdaptiveController
from pgax.types import Feedback, Rollout
from tests import arrays
from tests.ops.enumeration import (
  COMPLETIONS,
  LOGITS,
  REWARDS,
  assert_same,
  exact_gradient,
  probability,
  token_logp,
)

ROLLOUT, FEEDBACK, VALUES = arrays.rollout(), arrays.feedback(), arrays.values()
MASK = ROLLOUT.action_mask
REINFORCE = algorithms.reinforce(baseline="none")


def tiny_rollout(tokens, finished=True):
  """A prompt with a group of completions of the tiny policy, all of the same length."""
  shape = (1, *np.shape(tokens))
  ones, zeros = jnp.ones(shape, bool), jnp.zeros(shape)
  prompt = jnp.ones((1, 1), jnp.int32)
  ended = jnp.full(shape[:-1], finished)
  tokens = jnp.asarray(tokens, jnp.int32)[None]
  return Rollout(prompt, prompt > 0, tokens, ones, ones, zeros, zeros, ended)


def entropies(logits):
  """Entropy before each token of the nine completions, `[1, 9, 2]`."""
  first = logprobs.entropy(jax.nn.log_softmax(logits["first"]))
  second = logprobs.entropy(jax.nn.log_softmax(logits["second"], axis=-1))
  return jnp.stack([jnp.full(9, first), second[COMPLETIONS[:, 0]]], axis=-1)[None]


def entropy_gradient(logits):
  """`dH / d logit_a = -p_a (log p_a + H)`, for the last axis of logits."""
  p = np.exp(logits - np.log(np.sum(np.exp(logits), -1, keepdims=True)))
  entropy = -np.sum(p * np.log(p), -1, keepdims=True)
  return -p * (np.log(p) + entropy)


def test_the_gradient_of_an_entropy_bonus_is_that_of_the_enumerated_entropy():
  algorithm = dataclasses.replace(REINFORCE, entropy=EntropyBonus(kl.FixedController(0.3)))
  feedback = Feedback(jnp.zeros((1, 9)), jnp.ones((1, 9), bool))  # no other gradient
  batch = algorithms.prepare(algorithm, tiny_rollout(COMPLETIONS), feedback)
  # In place of a sample, every completion with its probability.
  p = probability(LOGITS)
  batch = batch.replace(weights=jnp.broadcast_to(p[:, None], (1, 9, 2)))

  def objective(logits):
    logp = token_logp(logits)[None]
    total, sums = algorithms.loss(
      algorithm, logp, batch, entropy=entropies(logits), entropy_coef=0.3
    )
    return total, sums

  gradient, sums = jax.grad(objective, has_aux=True)(LOGITS)
  first = entropy_gradient(np.asarray(LOGITS["first"], np.float64))
  second = entropy_gradient(np.asarray(LOGITS["second"], np.float64))
  reached = np.asarray(jax.nn.softmax(LOGITS["first"]))[:, None]
  expected = {"first": -0.3 * first, "second": -0.3 * reached * second}
  assert_same(gradient, expected)
  assert sums.entropy == pytest.approx(float(jnp.sum(p[:, None] * entropies(LOGITS)[0])))


def test_a_bonus_of_zero_is_no_bonus():
  plain = algorithms.prepare(REINFORCE, ROLLOUT, FEEDBACK)
  bonus = dataclasses.replace(REINFORCE, entropy=EntropyBonus(kl.FixedController(0.0)))
  ours = algorithms.loss(bonus, ROLLOUT.logp, plain, entropy=VALUES)
  theirs = algorithms.loss(REINFORCE, ROLLOUT.logp, plain)
  assert ours[0] == theirs[0] and ours[1].policy == theirs[1].policy
  with pytest.raises(ValueError, match="entropy is None; the algorithm has an entropy"):
    algorithms.loss(bonus, ROLLOUT.logp, plain)


def value_and_gradient(algorithm, batch):
  live = ROLLOUT.logp + 0.3 * (VALUES - 0.5) * MASK

  def objective(logp):
    return algorithms.loss(algorithm, logp, batch, 0.04)[0]

  return jax.jit(jax.value_and_grad(objective))(live)


def batch_of(algorithm):
  logp = ROLLOUT.logp
  return algorithms.prepare(algorithm, ROLLOUT, FEEDBACK, logp, logp - 0.1, entropy=VALUES)


def test_all_tokens_are_bitwise_no_filter():
  plain = algorithms.grpo(epochs=2)
  every = dataclasses.replace(plain, token_filter=parts.TopEntropy(1.0))
  for a, b in zip(
    value_and_gradient(plain, batch_of(plain)),
    value_and_gradient(every, batch_of(every)),
    strict=True,
  ):
    np.testing.assert_array_equal(a, b)


def test_only_tokens_of_high_entropy_have_a_surrogate():
  plain = algorithms.grpo(kl_coef=0.0, epochs=2)
  some = dataclasses.replace(plain, token_filter=parts.TopEntropy(0.3))
  batch = batch_of(some)
  selected = np.asarray(batch.surrogate_mask)
  assert selected.sum() == np.ceil(0.3 * MASK.sum())
  _, gradient = value_and_gradient(some, batch)
  _, whole = value_and_gradient(plain, batch_of(plain))
  assert np.all(np.asarray(gradient)[~selected] == 0)
  np.testing.assert_array_equal(np.asarray(gradient)[selected], whole[selected])
  # The weights are those of all tokens, as in the paper.
  np.testing.assert_array_equal(batch.weights, aggregation.sequence_mean(MASK))
  # The penalty pulls at every token.
  penalized = dataclasses.replace(algorithms.grpo(epochs=2), token_filter=some.token_filter)
  _, pulled = value_and_gradient(penalized, batch_of(penalized))
  assert np.all(np.asarray(pulled)[~selected & np.asarray(MASK)] != 0)


def bootstrapping(critic=True):
  """REINFORCE on advantages of a critic, and what follows truncated completions."""
  part = parts.GAE(lam=1.0, whiten=False)
  spec = CriticSpec(
    parts.LambdaReturn(lam=1.0), parts.SquaredError(), bootstrap_truncated=critic
  )
  return dataclasses.replace(REINFORCE, advantage=part, critic=spec)


def truncated_gradient(algorithm, finished):
  """Expected policy gradient of the first token alone, with exact values after it."""
  p_first = jax.nn.softmax(LOGITS["first"])
  p_second = jax.nn.softmax(LOGITS["second"], axis=-1)
  after = jnp.sum(p_second * REWARDS.reshape(3, 3), axis=-1)  # value of each first token
  before = jnp.sum(p_first * after)
  feedback = Feedback(jnp.zeros((1, 3)), jnp.ones((1, 3), bool))
  rollout = tiny_rollout(np.arange(3)[:, None], finished)
  values, end = jnp.full((1, 3, 1), before), after[None]
  batch = algorithms.prepare(algorithm, rollout, feedback, values=values, end_values=end)

  def objective(first):
    logp = jax.nn.log_softmax(first)
    return jnp.sum(p_first * batch.advantages[0, :, 0] * logp)

  return jax.grad(objective)(LOGITS["first"]), batch


def test_bootstrapped_truncation_has_the_gradient_of_the_enumerated_return():
  gradient, batch = truncated_gradient(bootstrapping(), finished=False)
  np.testing.assert_allclose(gradient, exact_gradient()["first"], rtol=1e-4, atol=1e-6)
  # The target of the critic is the return, too: the value after the last token.
  expected = np.asarray(REWARDS.reshape(3, 3))
  expected = np.sum(np.asarray(jax.nn.softmax(LOGITS["second"])) * expected, -1)
  np.testing.assert_allclose(batch.targets[0, :, 0], expected, rtol=1e-5)


def test_what_has_ended_has_no_value_after_it():
  ended, batch = truncated_gradient(bootstrapping(), finished=True)
  without, _ = truncated_gradient(bootstrapping(critic=False), finished=False)
  assert np.all(np.asarray(batch.targets) == 0)
  np.testing.assert_array_equal(ended, without)
  assert np.abs(ended - exact_gradient()["first"]).max() > 0.01


def test_settings_of_a_run_add_parts():
  grpo = algorithms.grpo(epochs=2)
  assert UpdateConfig().added_to(grpo) is grpo
  fixed = UpdateConfig(entropy_coef=0.01).added_to(grpo)
  assert fixed.entropy == EntropyBonus(kl.FixedController(0.01))
  adaptive = UpdateConfig(entropy_coef=0.01, entropy_target=0.2, entropy_step=0.1)
  controller = AdaptiveController(0.2, 0.1, 0.01)
  assert adaptive.added_to(grpo).entropy == EntropyBonus(controller)
  rest = UpdateConfig(top_entropy=0.2, target_kl=0.1).added_to(grpo)
  assert rest.token_filter == parts.TopEntropy(0.2) and rest.target_kl == 0.1
  assert rest.needs_old_logp
  for name, value in (
    ("top_entropy", 0.0),
    ("target_kl", -1.0),
    ("entropy_step", 0.0),
    ("entropy_step", math.inf),
  ):
    with pytest.raises(ValueError, match=f"{name} is {value}"):
      UpdateConfig(**{name: value})


def test_missing_inputs_are_named():
  with pytest.raises(ValueError, match="end_values is None, but critic.bootstrap"):
    algorithms.prepare(bootstrapping(), ROLLOUT, FEEDBACK, values=VALUES)
  some = dataclasses.replace(algorithms.dr_grpo(), token_filter=parts.TopEntropy(0.3))
  with pytest.raises(ValueError, match="entropy is None, but token_filter"):
    algorithms.prepare(some, ROLLOUT, FEEDBACK, ROLLOUT.logp)
  with pytest.raises(ValueError, match="old_logp is None"):
    algorithms.prepare(some, ROLLOUT, FEEDBACK, entropy=VALUES)
