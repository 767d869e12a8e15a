"""Rollouts of TPO's token reversal: prompts, completions and rewards.

The candidates of a state need no sequences of their own: their log-probabilities are those
of one causal pass over the trajectory. Random keys are derived as in the authors' code, so
that runs can be compared one by one.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
from flax import struct

from experiments.reproductions.tpo.reversal_model import Cache, Transformer, empty_cache
from pgax.types import Array, PyTree


@dataclasses.dataclass(frozen=True)
class Task:
  """Sizes of the task.

  Attributes:
    vocab: number of tokens in the vocabulary.
    length: number of tokens of a prompt, and of its reversal.
    prompts: number of prompts of a step.
  """

  vocab: int
  length: int = 10
  prompts: int = 100

  @property
  def model(self) -> Transformer:
    """The policy."""
    return Transformer(self.vocab, 2 * self.length)


@struct.dataclass
class Rollout:
  """Trajectories, with `K` candidates at each of their states.

  Attributes:
    tokens: `[B, 2 * T - 1]` prompts and the tokens that follow them, without the last.
    candidates: `[B, T, K]` candidates for each next token, of which the first one was used.
    logp: `[B, T, K]` their log-probabilities, nats.
    rewards: `[B, T, K]` their rewards.
    error: fraction of wrong tokens, those of the candidates that were not used left out.
  """

  tokens: Array
  candidates: Array
  logp: Array
  rewards: Array
  error: Array


def draw(key: Array, logp: Array, count: int) -> Array:
  """Draws candidates for the next token.

  Args:
    key: random key.
    logp: `[B, vocab]` log-probabilities, nats.
    count: number of candidates of each row.

  Returns:
    `[B, count]` int tokens.
  """
  if count == 1:
    return jax.random.categorical(key, logp)[:, None]
  draw_row = functools.partial(jax.random.categorical, shape=(count,))
  return jax.vmap(draw_row)(jax.random.split(key, len(logp)), logp)


def roll_out(task: Task, params: PyTree, key: Array, candidates: int) -> Rollout:
  """Samples prompts and a trajectory for each, with candidates at its states.

  Args:
    task: sizes of the task.
    params: parameters of the policy.
    key: random key.
    candidates: number of candidates at each state.

  Returns:
    A `Rollout`.
  """
  prompts, start, key = read_prompts(task, params, key)
  drawn, logp = complete(task, params, start, key, candidates)
  tokens = jnp.concatenate([prompts, drawn[:, :-1, 0]], axis=1)
  rewards = (drawn == prompts[:, ::-1, None]).astype(jnp.float32)
  return Rollout(tokens, drawn, logp, rewards, 1 - jnp.mean(rewards[..., 0]))


def read_prompts(
  task: Task, params: PyTree, key: Array
) -> tuple[Array, tuple[Array, Cache], Array]:
  """Draws prompts and reads them.

  Args:
    task: sizes of the task.
    params: parameters of the policy.
    key: random key.

  Returns:
    `[B, T]` prompts; the log-probabilities `[B, 1, vocab]` after them, with the cache; and
    the random key of what follows.
  """
  prompt_key, key = jax.random.split(key)
  prompts = jax.random.randint(prompt_key, (task.prompts, task.length), 0, task.vocab)
  cache = empty_cache(task.prompts, 2 * task.length)
  return prompts, task.model.apply(params, prompts, 1, cache), key


def complete(
  task: Task, params: PyTree, start: tuple[Array, Cache], key: Array, candidates: int
) -> tuple[Array, Array]:
  """Samples the tokens after prompts.

  Args:
    task: sizes of the task.
    params: parameters of the policy.
    start: log-probabilities and cache from `read_prompts`.
    key: random key.
    candidates: number of candidates at each state; the first one is followed.

  Returns:
    `[B, T, candidates]` tokens and their log-probabilities, nats.
  """

  def choose(key: Array, logp: Array) -> tuple[Array, Array]:
    drawn = draw(key, logp[:, 0], candidates)
    return drawn, jnp.take_along_axis(logp[:, 0], drawn, axis=-1)

  def step(carry: tuple, position: Array) -> tuple[tuple, tuple[Array, Array]]:
    (logp, cache), key = carry
    now, key = jax.random.split(key)
    drawn, drawn_logp = choose(now, logp)
    following = task.model.apply(params, drawn[:, :1], 1, cache, position)
    return (following, key), (drawn, drawn_logp)

  positions = task.length + jnp.arange(task.length - 1)
  ((logp, _), key), before = jax.lax.scan(step, (start, key), positions)
  last = choose(jax.random.split(key)[0], logp)  # nothing follows it
  return tuple(
    jnp.moveaxis(jnp.concatenate([x, y[None]]), 0, 1)
    for x, y in zip(before, last, strict=True)
  )


def candidate_logp(task: Task, params: PyTree, rollout: Rollout) -> Array:
  """Log-probabilities of the candidates, by one pass over the trajectories.

  Args:
    task: sizes of the task.
    params: parameters of the policy.
    rollout: the rollout.

  Returns:
    `[B, T, K]` log-probabilities, nats.
  """
  logp, _ = task.model.apply(params, rollout.tokens, task.length)
  return jnp.take_along_axis(logp, rollout.candidates, axis=-1)
