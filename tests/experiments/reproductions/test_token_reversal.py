"""TPO's token reversal: cached decoding, rewards, losses, and the authors' first errors."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.reproductions.tpo import reversal_rollout
from experiments.reproductions.tpo.reversal import token_reversal
from experiments.reproductions.tpo.reversal_methods import METHODS
from experiments.reproductions.tpo.reversal_rollout import Task
from pgax.study import run_program
from tests.experiments.reproductions.policies import noisy_params

TASK = Task(vocab=3, length=4, prompts=5)
CANDIDATES = 3


@pytest.fixture(scope="module")
def params():
  return noisy_params(TASK)


@pytest.fixture(scope="module")
def rollout(params):
  draw = jax.jit(functools.partial(reversal_rollout.roll_out, TASK, candidates=CANDIDATES))
  return draw(params, jax.random.key(0))


def test_cached_decoding_equals_a_pass_over_each_prefix(params, rollout):
  pass_over = jax.jit(lambda x: TASK.model.apply(params, x, x.shape[1])[0])
  tokens, candidates = map(np.asarray, (rollout.tokens, rollout.candidates))
  for position in range(TASK.length):
    end = TASK.length + position
    prefix = np.zeros((TASK.prompts, 2 * TASK.length), np.int32)  # and nothing after it
    prefix[:, :end] = tokens[:, :end]
    logp = np.asarray(pass_over(prefix))[:, end - 1]
    chosen = np.take_along_axis(logp, candidates[:, position], axis=-1)
    np.testing.assert_allclose(rollout.logp[:, position], chosen, atol=1e-5)


def test_one_pass_gives_the_candidates_of_all_states(params, rollout):
  logp = jax.jit(functools.partial(reversal_rollout.candidate_logp, TASK))(params, rollout)
  np.testing.assert_allclose(logp, rollout.logp, atol=1e-5)
  assert np.ptp(logp) > 0.5  # else everything would be close to everything


def test_the_first_candidate_continues_and_the_reversed_prompt_is_right(rollout):
  prompts, followed = np.split(np.asarray(rollout.tokens), [TASK.length], axis=1)
  candidates, rewards = map(np.asarray, (rollout.candidates, rollout.rewards))
  np.testing.assert_array_equal(followed, candidates[:, :-1, 0])
  for row in range(TASK.prompts):
    for position in range(TASK.length):
      right = candidates[row, position] == prompts[row, -1 - position]
      np.testing.assert_array_equal(rewards[row, position], right)
  assert 0 < rewards.mean() < 1


def test_candidates_are_drawn_from_the_policy():
  logp = jnp.log(jnp.array([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]]))
  for count in (1, 8):
    keys = jax.random.split(jax.random.key(0), 4000 // count)
    draw = functools.partial(reversal_rollout.draw, logp=logp, count=count)
    drawn = jax.jit(jax.vmap(draw))(keys)
    assert drawn.shape == (4000 // count, 2, count)
    for row in range(2):
      shares = np.bincount(np.asarray(drawn[:, row]).ravel(), minlength=3) / 4000
      np.testing.assert_allclose(shares, np.exp(logp[row]), atol=0.03)


def softmax(x):
  weights = np.exp(x - x.max(-1, keepdims=True))
  return weights / weights.sum(-1, keepdims=True)


def standardized(rewards):
  deviation = rewards.std(-1, keepdims=True)
  centered = rewards - rewards.mean(-1, keepdims=True)
  return np.where(deviation > 0, centered / np.where(deviation > 0, deviation, 1), 0)


def tpo(logp, old, rewards):
  target = softmax(np.log(softmax(old)) + standardized(rewards))
  return -(target * np.log(softmax(logp))).sum(-1).mean()


def clipped(ratio, advantages):
  return np.minimum(ratio * advantages, np.clip(ratio, 0.8, 1.2) * advantages)


def grpo(logp, old, rewards):
  penalty = np.exp(old - logp) - (old - logp) - 1
  gain = clipped(np.exp(logp - old), standardized(rewards)) - 0.04 * penalty
  return -gain.sum(-1).mean()


def grpo_without_kl(logp, old, rewards):
  return -clipped(np.exp(logp - old), standardized(rewards)).sum(-1).mean()


def ppo(logp, old, rewards):
  advantages = rewards - rewards.mean(0)
  return -clipped(np.exp(logp - old), advantages).sum((1, 2)).mean()


def dg(logp, old, rewards):
  del old
  advantages = rewards - rewards.mean(0)
  gate = 1 / (1 + np.exp(advantages * logp))
  return -(gate * advantages * logp).sum((1, 2)).mean()


FORMULAS = {
  "TPO": tpo,
  "GRPO": grpo,
  "GRPO without KL": grpo_without_kl,
  "PPO": ppo,
  "DG": dg,
}


@pytest.mark.parametrize(("method", "formula"), FORMULAS.items())
def test_losses_are_their_formulas(method, formula):
  count = METHODS[method].candidates
  random = np.random.default_rng(0)
  shape = (TASK.prompts, TASK.length, count)
  old, change = random.normal(-1.5, 0.5, shape), random.normal(0, 0.3, shape)
  rewards = random.integers(0, 2, shape).astype(float)
  rewards[0] = 1.0  # where nothing is to be learned by a group
  logp = old + change
  filled = reversal_rollout.Rollout(
    tokens=jnp.zeros((TASK.prompts, 2 * TASK.length - 1), jnp.int32),
    candidates=jnp.zeros(shape, jnp.int32),
    logp=jnp.asarray(old),
    rewards=jnp.asarray(rewards),
    error=jnp.zeros(()),
  )
  loss = jax.jit(METHODS[method].loss)(jnp.asarray(logp), filled)
  np.testing.assert_allclose(loss, formula(logp, old, rewards), rtol=1e-5)


@pytest.mark.parametrize("method", ["GRPO", "PPO"])
def test_nothing_pulls_beyond_the_clip(method):
  shape = (4, 2, METHODS[method].candidates)
  rewards = jnp.zeros(shape).at[0].set(1.0).at[..., 0].add(0.5)
  old = jnp.full(shape, -2.0)
  filled = reversal_rollout.Rollout(
    jnp.zeros(()), jnp.zeros(()), old, rewards, jnp.zeros(())
  )
  slope = jax.jit(jax.grad(METHODS[method].loss))
  slopes, gains = slope(old + jnp.log(2.0), filled), slope(old, filled) < 0
  # The penalty of GRPO pulls back to the old policy; PPO has none.
  pulled = slopes > 0 if method == "GRPO" else slopes == 0
  assert gains.any() and pulled[gains].all()


# Errors of seed 0 in the first steps of the authors' code, 1,000 tokens in each.
THEIRS = {
  "TPO": (0.525, 0.52, 0.473, 0.477, 0.51, 0.428),
  "DG": (0.52, 0.491, 0.492, 0.446, 0.474, 0.421),
}


@pytest.mark.parametrize("method", THEIRS)
def test_a_run_begins_as_that_of_the_authors(method):
  theirs = THEIRS[method]
  made = token_reversal(method, Task(vocab=2), len(theirs))
  metrics = run_program(made, [{}], [0], at_once=1, progress=False)
  # Another machine may round differently, and sample another token or two.
  np.testing.assert_allclose(metrics["error"][0, 0], theirs, atol=3e-3)
