"""Token reversal with a terminal reward (arXiv 2604.06159, section 3.6), as a program.

The reward is 1 if all tokens are those of the reversed prompt, else 0. TPO and GRPO group
eight completions of each prompt. PPO and DG have one for each prompt; their baseline is the
mean of the batch. They see either as many prompts as the others, or as many completions.
The task and the rest of the methods are those of `reversal`.
"""

import functools
import math

import jax
import jax.numpy as jnp

from experiments.reproductions.tpo.reversal import LEARNING_RATE, training_program
from experiments.reproductions.tpo.reversal_methods import CANDIDATES, METHODS
from experiments.reproductions.tpo.reversal_model import empty_cache
from experiments.reproductions.tpo.reversal_rollout import (
  Rollout,
  Task,
  candidate_logp,
  complete,
  read_prompts,
  roll_out,
)
from pgax.study import Program
from pgax.types import Array, PyTree

# What methods without groups share with the others: prompts of a step, or completions.
MATCHES = ("prompts", "completions")


def terminal_reversal(method: str, length: int, match: str, steps: int) -> Program:
  """Token reversal with a terminal reward; its metric is the fraction of wrong completions.

  Args:
    method: one of `reversal_methods.METHODS`.
    length: number of tokens of a prompt.
    match: one of `MATCHES`. With as many completions as the others, a method without groups
      has eight times as many prompts and the square root of 8 times the learning rate.
    steps: number of steps.

  Returns:
    A `Program`.
  """
  chosen, task, learning_rate = METHODS[method], Task(2, length), LEARNING_RATE
  if chosen.candidates > 1:
    sample = functools.partial(roll_out_groups, task, size=chosen.candidates)
    logp = functools.partial(completion_logp, task)
  else:
    if match == "completions":
      task = Task(2, length, CANDIDATES * task.prompts)
      learning_rate *= math.sqrt(CANDIDATES)
    sample = functools.partial(roll_out_alone, task)
    logp = functools.partial(candidate_logp, task)
  return training_program(task, chosen, steps, sample, logp, learning_rate)


def roll_out_alone(task: Task, params: PyTree, key: Array) -> Rollout:
  """Samples prompts and a completion of each, whose tokens all have its reward.

  Args:
    task: sizes of the task.
    params: parameters of the policy.
    key: random key.

  Returns:
    A `Rollout` with one candidate at each state.
  """
  rollout = roll_out(task, params, key, candidates=1)
  right = jnp.min(rollout.rewards, axis=1, keepdims=True)
  rewards = jnp.broadcast_to(right, rollout.rewards.shape)
  return rollout.replace(rewards=rewards, error=1 - jnp.mean(right))


def roll_out_groups(task: Task, params: PyTree, key: Array, size: int) -> Rollout:
  """Samples prompts and a group of completions of each.

  Args:
    task: sizes of the task.
    params: parameters of the policy.
    key: random key.
    size: number of completions of a prompt.

  Returns:
    A `Rollout` of one state, the prompt `[B, T]`. Its candidates are completions
    `[B, T, size]`; their log-probabilities and rewards are `[B, 1, size]`.
  """
  prompts, start, key = read_prompts(task, params, key)

  def one(key: Array) -> tuple[Array, Array]:
    drawn, logp = complete(task, params, start, key, 1)
    return drawn[..., 0], jnp.sum(logp, axis=(1, 2))

  drawn, logp = jax.vmap(one, out_axes=-1)(jax.random.split(key, size))
  right = jnp.all(drawn == prompts[:, ::-1, None], axis=1, keepdims=True)
  rewards = right.astype(jnp.float32)
  return Rollout(prompts, drawn, logp[:, None], rewards, 1 - jnp.mean(rewards))


def completion_logp(task: Task, params: PyTree, rollout: Rollout) -> Array:
  """Log-probabilities of the completions of a group, which share the pass over its prompt.

  Args:
    task: sizes of the task.
    params: parameters of the policy.
    rollout: from `roll_out_groups`.

  Returns:
    `[B, 1, size]` log-probabilities, nats.
  """
  cache = empty_cache(task.prompts, 2 * task.length)
  first, cache = task.model.apply(params, rollout.tokens, 1, cache)

  def one(tokens: Array) -> Array:
    before, count = tokens[:, :-1], task.length - 1
    following, _ = task.model.apply(params, before, count, cache, task.length)
    logp = jnp.concatenate([first, following], axis=1)
    return jnp.sum(jnp.take_along_axis(logp, tokens[..., None], axis=-1), axis=(1, 2))

  return jax.vmap(one, in_axes=-1, out_axes=-1)(rollout.candidates)[:, None]
