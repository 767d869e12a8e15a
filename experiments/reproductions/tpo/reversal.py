"""Token reversal of TPO (arXiv 2604.06159, section 3.4), as a program.

A small transformer reads ten random tokens and writes ten. The reward of a token is 1 if it
is that of the reversed prompt. TPO and GRPO group eight *candidates* for the next token at
each state of a trajectory, which the first of them continues. PPO and DG have no
candidates; their baseline is the mean of the batch at each position.
"""

import functools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import optax
from optax import contrib

from experiments.reproductions.tpo.reversal_methods import METHODS, Method
from experiments.reproductions.tpo.reversal_rollout import (
  Rollout,
  Task,
  candidate_logp,
  roll_out,
)
from pgax.study import Program
from pgax.study.program import Metrics, Numbers
from pgax.types import Array, PyTree

LEARNING_RATE = 1e-3


def token_reversal(method: str, task: Task, steps: int) -> Program:
  """Token reversal; its metric is the fraction of wrong tokens that a step samples.

  Args:
    method: one of `METHODS`.
    task: sizes of the task.
    steps: number of steps.

  Returns:
    A `Program`.
  """
  chosen = METHODS[method]
  sample = functools.partial(roll_out, task, candidates=chosen.candidates)
  logp = functools.partial(candidate_logp, task)
  return training_program(task, chosen, steps, sample, logp)


def training_program(
  task: Task,
  method: Method,
  steps: int,
  sample: Callable[..., Rollout],
  candidate_logp: Callable[[PyTree, Rollout], Array],
  learning_rate: float = LEARNING_RATE,
) -> Program:
  """Makes a program that samples and updates; its metric is the error of each rollout.

  Args:
    task: sizes of the task.
    method: the loss of a rollout, and its number of updates.
    steps: number of steps.
    sample: samples a rollout, given `params` and `key`.
    candidate_logp: computes the log-probabilities of a rollout's candidates.
    learning_rate: learning rate of Muon.

  Returns:
    A `Program`.
  """
  optimizer = contrib.muon(learning_rate)

  def start(numbers: Numbers, seeds: Sequence[int]) -> tuple[PyTree, PyTree, Array]:
    del numbers

    def one(seed: Array) -> tuple[PyTree, PyTree, Array]:
      key, tokens = jax.random.key(seed), jnp.zeros((1, 2 * task.length), jnp.int32)
      params = task.model.init(key, tokens, 1)
      return params, optimizer.init(params), key

    return jax.jit(jax.vmap(one))(jnp.asarray(seeds))

  def step(
    numbers: Numbers, state: tuple[PyTree, PyTree, Array], data: tuple, index: Array
  ) -> tuple[tuple[PyTree, PyTree, Array], Metrics]:
    del numbers, data
    params, moments, key = state
    rollout = sample(params=params, key=jax.random.fold_in(key, index))

    def loss(params: PyTree) -> Array:
      return method.loss(candidate_logp(params, rollout), rollout)

    def epoch(carry: tuple[PyTree, PyTree], _: None) -> tuple[tuple, None]:
      params, moments = carry
      updates, moments = optimizer.update(jax.grad(loss)(params), moments, params)
      return (optax.apply_updates(params, updates), moments), None

    carry, _ = jax.lax.scan(epoch, (params, moments), None, method.epochs)
    return (*carry, key), {"error": rollout.error}

  return Program(steps, start, step)
