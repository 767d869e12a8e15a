"""Token reversal of TPO (arXiv 2604.06159, section 3.4), as a program.

A small transformer reads ten random tokens and writes ten. The reward of a token is 1 if it
is that of the reversed prompt. TPO and GRPO group eight *candidates* for the next token at
each state of a trajectory, which the first of them continues. PPO and DG have no
candidates; their baseline is the mean of the batch at each position. Random keys are
derived as in the authors' code, so that runs can be compared one by one.

The candidates of a state need no sequences of their own: their log-probabilities are those
of one causal pass over the trajectory.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import optax
from flax import struct
from optax import contrib

from experiments.reproductions.tpo.reversal_model import Cache, Transformer, empty_cache
from pgax.ops import advantages, kl, surrogates
from pgax.study import Program
from pgax.study.program import Metrics, Numbers
from pgax.types import Array, PyTree

LEARNING_RATE = 1e-3
CANDIDATES, EPOCHS = 8, 4
_KL_COEF = 0.04  # of GRPO


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


def _batch_centered(rewards: Array) -> Array:
  """Rewards `[B, T, 1]` minus the mean of the batch at their position."""
  return advantages.dr_grpo(rewards.T).T


def _tpo(logp: Array, rollout: Rollout) -> Array:
  """TPO of each state, whose completions are of one token."""
  scores = advantages.grpo(rollout.rewards, eps=0.0)
  one_token = jnp.ones((*logp.shape, 1), bool)
  terms = surrogates.tpo(logp[..., None], rollout.logp[..., None], scores, one_token)
  return jnp.mean(terms.loss)


def _grpo(logp: Array, rollout: Rollout, kl_coef: float = _KL_COEF) -> Array:
  """GRPO with a penalty for the divergence from the old policy, summed over candidates."""
  scores = advantages.grpo(rollout.rewards, eps=1e-8)
  loss = surrogates.clipped(logp, rollout.logp, scores).loss
  if kl_coef:
    loss = loss + kl_coef * kl.k3(logp, rollout.logp)
  return jnp.mean(jnp.sum(loss, axis=-1))


def _ppo(logp: Array, rollout: Rollout) -> Array:
  """PPO, summed over the tokens of a trajectory."""
  centered = _batch_centered(rollout.rewards)
  loss = surrogates.clipped(logp, rollout.logp, centered).loss
  return jnp.mean(jnp.sum(loss, axis=(1, 2)))


def _dg(logp: Array, rollout: Rollout) -> Array:
  """DG: advantages times the sigmoid of advantage times surprisal, at temperature 1."""
  centered = _batch_centered(rollout.rewards)
  gated = jax.nn.sigmoid(-centered * logp) * centered
  return jnp.mean(jnp.sum(surrogates.policy_gradient(logp, gated).loss, axis=(1, 2)))


@dataclasses.dataclass(frozen=True)
class Method:
  """A method of the tables.

  Attributes:
    loss: the loss, given log-probabilities `[B, T, K]` of the candidates of a rollout.
    candidates: number of candidates of a group; 1 is a method without groups.
    epochs: number of updates by a rollout.
  """

  loss: Callable[[Array, Rollout], Array]
  candidates: int
  epochs: int


METHODS = {
  "TPO": Method(_tpo, CANDIDATES, EPOCHS),
  "GRPO": Method(_grpo, CANDIDATES, EPOCHS),
  "GRPO without KL": Method(functools.partial(_grpo, kl_coef=0.0), CANDIDATES, EPOCHS),
  "DG": Method(_dg, 1, 1),  # it has no limit on the update, which more epochs need
  "PPO": Method(_ppo, 1, EPOCHS),
}


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
  """Samples what follows prompts.

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
    method: how a rollout is learned from.
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
