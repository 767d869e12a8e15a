"""The bandits of TPO (arXiv 2604.06159), with tables of logits for policies, as programs.

Both make steps of a fixed length against the gradient of a surrogate. In the single
context, 100 samples of 100 actions are drawn at a time; in the 100 contexts of 10 actions
each, the gradient is the exact expectation. The right action is the first one. Random keys
are derived as in the authors' code, so that runs can be compared one by one.
"""

import functools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp

from pgax.ops import advantages, surrogates
from pgax.study import Program
from pgax.study.program import Metrics, Numbers
from pgax.types import Array

# The paper's sizes.
SAMPLES, ACTIONS, STEPS = 100, 100, 150
CONTEXTS, CONTEXT_ACTIONS, CONTEXT_STEPS = 100, 10, 1000
STEP_LENGTH = 0.1
_SAMPLED_KEY, _CONTEXTS_KEY = 0, 42  # of the two tasks
_BASELINE = 0.5  # of sampled rewards, except where a method has its own
METHODS = ("PG", "DG", "GRPO", "TPO")
CONTEXT_METHODS = (*METHODS, "CE")

# Weight of each action's `-log pi`, by rewards, log-probabilities and how to average.
Weigh = Callable[[Array, Array, Callable[[Array], Array]], Array]


def _gated(rewards: Array, logp: Array, mean: Callable[[Array], Array]) -> Array:
  """DG: advantages times the sigmoid of advantage times surprisal, at temperature 1."""
  del mean
  return jax.nn.sigmoid(-rewards * logp) * rewards


def _standardized(rewards: Array, logp: Array, mean: Callable[[Array], Array]) -> Array:
  """GRPO: rewards less their mean, divided by their deviation."""
  del logp
  centered = rewards - mean(rewards)
  return centered / jnp.sqrt(mean(jnp.square(centered)) + 1e-8)


def _plain(rewards: Array, logp: Array, mean: Callable[[Array], Array]) -> Array:
  """PG: the advantages themselves."""
  del logp, mean
  return rewards


_WEIGHTS: dict[str, Weigh] = {"PG": _plain, "DG": _gated, "GRPO": _standardized}


def _tpo_loss(logits: Array, scores: Array) -> Array:
  """TPO over all actions of a context, each a completion of one token."""
  logp = jax.nn.log_softmax(logits)[:, None]
  standardized = advantages.grpo(scores, eps=0.0)
  mask = jnp.ones(logp.shape, bool)
  return jnp.mean(surrogates.tpo(logp, logp, standardized, mask).loss)


def _sampled_loss(method: str, logits: Array, key: Array) -> Array:
  """The surrogate of a method on sampled actions."""
  actions = jax.random.categorical(key, logits, shape=(SAMPLES,))
  logp, rewards = jax.nn.log_softmax(logits)[actions], (actions == 0).astype(jnp.float32)
  if method == "TPO":
    centered = (rewards - _BASELINE)[:, None] * jax.nn.one_hot(actions, ACTIONS)
    return _tpo_loss(logits, jnp.mean(centered, axis=0))
  rewards = rewards if method == "GRPO" else rewards - _BASELINE
  weights = _WEIGHTS[method](rewards, logp, jnp.mean)
  return jnp.mean(surrogates.policy_gradient(logp, weights).loss)


def _exact_loss(method: str, logits: Array) -> Array:
  """The expected surrogate of a method in one context."""
  logp, rewards = jax.nn.log_softmax(logits), jax.nn.one_hot(0, CONTEXT_ACTIONS)
  if method == "TPO":
    return _tpo_loss(logits, rewards)
  if method == "CE":
    return -logp[0]
  policy = jax.lax.stop_gradient(jnp.exp(logp))

  def mean(x: Array) -> Array:
    return jnp.sum(policy * x)

  weights = _WEIGHTS[method](rewards, logp, mean)
  return mean(surrogates.policy_gradient(logp, weights).loss)


def _moved(logits: Array, gradient: Array) -> Array:
  return logits - STEP_LENGTH * gradient / jnp.sqrt(jnp.sum(gradient**2) + 1e-30)


def _keys(key: int, seeds: Sequence[int]) -> Array:
  """Keys of runs, numbered by their seeds."""
  return jax.random.split(jax.random.key(key), max(seeds) + 1)[jnp.asarray(seeds)]


def single_context(method: str) -> Program:
  """The bandit with one context and sampled actions; its metric is the error before a step.

  Args:
    method: one of `METHODS`.

  Returns:
    A `Program`.
  """

  def start(numbers: Numbers, seeds: Sequence[int]) -> tuple[Array, Array]:
    del numbers
    return jnp.zeros((len(seeds), ACTIONS)), _keys(_SAMPLED_KEY, seeds)

  def step(
    numbers: Numbers, state: tuple[Array, Array], data: tuple, index: Array
  ) -> tuple[tuple[Array, Array], Metrics]:
    del numbers, data
    logits, key = state
    step_key = jax.random.split(jax.random.split(key, STEPS)[index])[0]
    loss = functools.partial(_sampled_loss, method, key=step_key)
    error = 1 - jax.nn.softmax(logits)[0]
    return (_moved(logits, jax.grad(loss)(logits)), key), {"error": error}

  return Program(STEPS, start, step)


def many_contexts(method: str) -> Program:
  """The bandit with many contexts; its metric is the mean error after a step.

  Args:
    method: one of `CONTEXT_METHODS`.

  Returns:
    A `Program`.
  """

  def start(numbers: Numbers, seeds: Sequence[int]) -> Array:
    del numbers
    shape = (CONTEXTS, CONTEXT_ACTIONS)
    normal = functools.partial(jax.random.normal, shape=shape)
    return jax.vmap(normal)(_keys(_CONTEXTS_KEY, seeds))

  def step(
    numbers: Numbers, logits: Array, data: tuple, index: Array
  ) -> tuple[Array, Metrics]:
    del numbers, data, index
    loss = functools.partial(_exact_loss, method)
    logits = _moved(logits, jax.vmap(jax.grad(loss))(logits))
    return logits, {"error": 1 - jnp.mean(jax.nn.softmax(logits)[:, 0])}

  return Program(CONTEXT_STEPS, start, step)
