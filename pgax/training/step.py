"""The jitted train steps: reinforcement on a scored rollout, imitation of solutions."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from pgax.algorithms import Algorithm, LossSums, loss, prepare
from pgax.models.decoder import Decoder
from pgax.models.scoring import completion_logits
from pgax.ops import aggregation, kl, logprobs
from pgax.ops.masking import lengths, masked_mean, masked_sum
from pgax.training.state import TrainState, step_keys
from pgax.types import Array, Batch, PyTree, Rollout


class Update(NamedTuple):
  """What a train step tells of itself.

  Attributes:
    metrics: scalars under the names they are logged by.
    advantages: `[N, G, T]`, as the update used them.
  """

  metrics: dict[str, Array]
  advantages: Array


class _Sums(NamedTuple):
  """What microbatches add up to."""

  gradient: PyTree
  loss: Array
  parts: LossSums
  entropy: Array


def token_logp(
  model: Decoder, params: PyTree, batch: Rollout | Batch, temperature: float
) -> tuple[Array, Array]:
  """Log-probability and entropy at every completion token, by one forward pass.

  Args:
    model: the decoder.
    params: its parameters.
    batch: anything with prompts `[N, P]` and completions `[N, G, T]`.
    temperature: of the policy.

  Returns:
    Two arrays `[N, G, T]`, nats.
  """
  logits = completion_logits(
    model, params, batch.prompt_tokens, batch.prompt_mask, batch.tokens, batch.mask
  )
  log_probs = logprobs.log_softmax(logits, temperature)
  return logprobs.token_logp(log_probs, batch.tokens), logprobs.entropy(log_probs)


def split(tree: PyTree, parts: int) -> PyTree:
  """Axis 0 of every array in `parts` parts: `[N, ...]` to `[parts, N / parts, ...]`.

  Part `i` is every `parts`-th row from `i` on. With rows sharded in blocks, each part then
  has rows on every device, and nothing moves.
  """

  def strided(x: Array) -> Array:
    return x.reshape(x.shape[0] // parts, parts, *x.shape[1:]).swapaxes(0, 1)

  return jax.tree.map(strided, tree)


def join(tree: PyTree) -> PyTree:
  """The inverse of `split`."""
  return jax.tree.map(lambda x: x.swapaxes(0, 1).reshape(-1, *x.shape[2:]), tree)


def make_train_step(
  model: Decoder,
  algorithm: Algorithm,
  optimizer: optax.GradientTransformation,
  *,
  microbatches: int = 1,
  temperature: float = 1.0,
  shardings: TrainState | None = None,
) -> Callable[[TrainState, Rollout, Array, Array], tuple[TrainState, Update]]:
  """Builds the reinforcement step.

  Args:
    model: the decoder.
    algorithm: what to optimise.
    optimizer: how.
    microbatches: parts that an optimizer step's gradient is summed up from.
    temperature: of the policy.
    shardings: of the state (see `shardings_of`). What comes out is then laid out as
      what went in, and the second step is the first one's program.

  Returns:
    A jitted function of the state (donated), a `Rollout`, rewards `[N, G]` and
    `valid [N, G]`, to the next state and an `Update`.
  """

  def score(params: PyTree, rollout: Rollout) -> Array:
    parts = split(rollout, microbatches)
    return join(
      jax.lax.map(lambda part: token_logp(model, params, part, temperature)[0], parts)
    )

  def objective(params: PyTree, part: Batch, coef: Array) -> tuple[Array, tuple]:
    logp, entropy = token_logp(model, params, part, temperature)
    total, sums = loss(algorithm, logp, part, coef)
    return total, (sums, masked_sum(entropy, part.mask))

  def update(params: PyTree, opt_state: PyTree, batch: Batch, coef: Array) -> tuple:
    """One optimizer step, its gradient summed up over microbatches."""

    def add(total: _Sums, part: Batch) -> tuple[_Sums, None]:
      (value, (parts, entropy)), gradient = jax.value_and_grad(objective, has_aux=True)(
        params, part, coef
      )
      return jax.tree.map(jnp.add, total, _Sums(gradient, value, parts, entropy)), None

    zero = jnp.float32(0)
    zeros = _Sums(
      jax.tree.map(jnp.zeros_like, params), zero, LossSums(zero, zero, zero), zero
    )
    sums, _ = jax.lax.scan(add, zeros, split(batch, microbatches))
    updates, opt_state = optimizer.update(sums.gradient, opt_state, params)
    norm = optax.tree.norm(sums.gradient)
    told = sums._replace(gradient=None), norm
    return optax.apply_updates(params, updates), opt_state, told

  out_shardings = None if shardings is None else (shardings, None)

  @functools.partial(jax.jit, donate_argnums=0, out_shardings=out_shardings)
  def train_step(
    state: TrainState, rollout: Rollout, rewards: Array, valid: Array
  ) -> tuple[TrainState, Update]:
    _, key = step_keys(state.key, state.step)
    old_logp = score(state.params, rollout)
    ref_logp = score(state.ref_params, rollout)
    penalty = algorithm.kl
    coef = penalty.controller.value(state.kl_state) if penalty else jnp.float32(0)
    batch = prepare(algorithm, rollout, rewards, valid, old_logp, ref_logp, coef)

    # Weights are those of the global batch. A minibatch holds a part of their sum, so it is
    # scaled up to estimate the same loss.
    scaled = batch.replace(weights=batch.weights * algorithm.minibatches)

    def minibatch(carry: tuple, rows: Array) -> tuple:
      whole = algorithm.minibatches == 1  # then the order can't matter
      some = scaled if whole else jax.tree.map(lambda x: x[rows], scaled)
      *carry, told = update(*carry, some, coef)
      return tuple(carry), told

    prompts = rewards.shape[0]
    keys = jax.random.split(key, algorithm.epochs)
    orders = jax.vmap(lambda k: jax.random.permutation(k, prompts))(keys)
    (params, opt_state), (sums, norms) = jax.lax.scan(
      minibatch,
      (state.params, state.opt_state),
      orders.reshape(-1, prompts // algorithm.minibatches),
    )
    kl_state = state.kl_state
    if penalty:
      divergence = masked_sum(kl.k1(batch.old_logp, batch.ref_logp), batch.mask, axis=-1)
      measured = lengths(batch.mask) > 0
      per_completion = masked_mean(divergence, measured)
      kl_state = penalty.controller.update(kl_state, per_completion, jnp.sum(measured))
    tokens = jnp.maximum(jnp.sum(batch.mask), 1) * algorithm.epochs
    sampler_error = jnp.abs(old_logp - rollout.logp)
    metrics = {
      "loss": jnp.mean(sums.loss),
      "loss/policy": jnp.mean(sums.parts.policy),
      "loss/kl": jnp.mean(sums.parts.kl),
      "grad_norm": jnp.mean(norms),
      "param_norm": optax.tree.norm(params),
      "entropy": jnp.sum(sums.entropy) / tokens,
      "kl/ref": masked_mean(kl.k3(batch.old_logp, batch.ref_logp), batch.mask),
      "kl/coef": coef,
      "ratio/clip_fraction": jnp.sum(sums.parts.clipped) / tokens,
      "ratio/sampler_error": masked_mean(sampler_error, rollout.mask),
    }
    state = state.replace(
      step=state.step + 1, params=params, opt_state=opt_state, kl_state=kl_state
    )
    return state, Update(metrics, batch.advantages)

  return train_step


def make_imitation_step(
  model: Decoder,
  optimizer: optax.GradientTransformation,
  *,
  shardings: TrainState | None = None,
) -> Callable[..., tuple[TrainState, dict[str, Array]]]:
  """Builds the supervised step: mean negative log-likelihood of the solutions' tokens.

  Args:
    model: the decoder.
    optimizer: of the warm start.
    shardings: of the state, as for `make_train_step`.

  Returns:
    A jitted function of the state (donated), prompts `[N, P]` with their mask and
    solutions `[N, T]` with theirs, to the next state and its metrics.
  """
  out_shardings = None if shardings is None else (shardings, None)

  @functools.partial(jax.jit, donate_argnums=0, out_shardings=out_shardings)
  def imitation_step(state, prompt_tokens, prompt_mask, tokens, mask):
    tokens, mask = tokens[:, None], mask[:, None]  # a group of one

    def objective(params: PyTree) -> Array:
      logits = completion_logits(model, params, prompt_tokens, prompt_mask, tokens, mask)
      logp = logprobs.token_logp(logprobs.log_softmax(logits), tokens)
      return -masked_sum(aggregation.token_mean(mask) * logp, mask)

    value, gradient = jax.value_and_grad(objective)(state.params)
    updates, opt_state = optimizer.update(gradient, state.opt_state, state.params)
    state = state.replace(
      step=state.step + 1,
      params=optax.apply_updates(state.params, updates),
      opt_state=opt_state,
    )
    metrics = {
      "loss": value,
      "grad_norm": optax.tree.norm(gradient),
      "param_norm": optax.tree.norm(state.params),
    }
    return state, metrics

  return imitation_step
