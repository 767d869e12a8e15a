"""The supervised step: negative log-likelihood of worked solutions."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax

from pgax.distributed.microbatches import split
from pgax.learner.forward import row_logp
from pgax.learner.learner import Learner
from pgax.learner.state import TrainState
from pgax.models import lora
from pgax.models.experts import RouterLoad
from pgax.models.routing import balance_weights
from pgax.models.scoring import row_features
from pgax.ops import aggregation
from pgax.ops.finite import all_finite, take_if
from pgax.ops.masking import masked_sum
from pgax.types import Array, DemonstrationRows, PyTree


def token_weights(rows: DemonstrationRows, normalize_constant: float = 0.0) -> Array:
  """Computes the weight of every token of a global batch; packing does not change it.

  Args:
    rows: the whole batch.
    normalize_constant: 0 for the mean over all trained tokens (`aggregation.token_mean`);
      otherwise each solution's sum is divided by it and solutions are averaged
      (`aggregation.fixed_length`, CS336's `masked_normalize`).

  Returns:
    `[R, L]` float32.
  """
  if not normalize_constant:
    return aggregation.token_mean(rows.learned)
  count = jnp.sum(jnp.max(rows.segments, axis=-1))
  return aggregation.fixed_length(rows.learned, normalize_constant, count)


def make_supervised_step(
  learner: Learner,
  *,
  normalize_constant: float = 0.0,
  microbatches: int = 1,
  shardings: TrainState | None = None,
) -> Callable[[TrainState, DemonstrationRows], tuple[TrainState, dict[str, Array]]]:
  """Jits `supervised_step` for a learner; the state is donated.

  Args:
    learner: model and settings, with the optimizer of this stage.
    normalize_constant: see `token_weights`.
    microbatches: number of microbatches that the gradient is summed over.
    shardings: shardings of the state.

  Returns:
    A function of a state and `DemonstrationRows`.
  """
  return jax.jit(
    functools.partial(
      supervised_step,
      learner,
      normalize_constant=normalize_constant,
      microbatches=microbatches,
    ),
    donate_argnums=0,
    out_shardings=None if shardings is None else (shardings, None),
  )


def supervised_objective(
  trained: PyTree,
  learner: Learner,
  base: PyTree,
  rows: DemonstrationRows,
  weights: Array,
  router_weights: Array | None = None,
) -> tuple[Array, Array]:
  """Computes the weighted negative log-likelihood `sum(w * -logp)` of solutions.

  Args:
    trained: trained parameters of the policy.
    learner: model and settings.
    base: frozen parameters under adapters; empty without adapters.
    rows: a batch, or some of its rows.
    weights: `[R, L]` from `token_weights`.
    router_weights: `[X]` from `routing.balance_weights`; None without that loss.

  Returns:
    The loss, which includes the load-balancing loss, and the latter without its
    coefficient.
  """
  params = lora.attach(learner.lora, base, trained)
  logp, load = row_logp(learner.model, params, rows, learner.config.logit_chunk)
  total, balance = -masked_sum(weights * logp, rows.learned), jnp.float32(0)
  if router_weights is not None:
    balance = jnp.sum(router_weights * load.probability)
    total = total + learner.config.router_aux_coef * balance
  return total, balance


def _router_weights(
  learner: Learner, state: TrainState, rows: DemonstrationRows, microbatches: int
) -> Array | None:
  """Weights of the load-balancing loss, by a pass over the batch; None without it."""
  if not learner.config.router_aux_coef:
    return None
  params = lora.attach(learner.lora, state.base, state.params)

  def load(part: DemonstrationRows) -> RouterLoad:
    arrays = part.tokens, part.positions, part.segments
    return row_features(learner.model, params, *arrays)[1]

  parts = jax.lax.map(load, split(rows, microbatches))
  total = jax.tree.map(lambda x: jnp.sum(x, axis=0), parts)
  return balance_weights(total.chosen, total.tokens)


def supervised_step(
  learner: Learner,
  state: TrainState,
  rows: DemonstrationRows,
  *,
  normalize_constant: float = 0.0,
  microbatches: int = 1,
) -> tuple[TrainState, dict[str, Array]]:
  """Trains on worked solutions; an update that is not finite is not taken.

  Args:
    learner: model and settings, with the optimizer of this stage.
    state: state before the step.
    rows: a batch of worked solutions.
    normalize_constant: see `token_weights`.
    microbatches: number of microbatches that the gradient is summed over.

  Returns:
    The next state and metrics.
  """
  router_weights = _router_weights(learner, state, rows, microbatches)

  def add(total: tuple, part: tuple) -> tuple[tuple, None]:
    gradient_of = jax.value_and_grad(supervised_objective, has_aux=True)
    value_and_gradient = gradient_of(
      state.params, learner, state.base, *part, router_weights
    )
    return jax.tree.map(jnp.add, total, value_and_gradient), None

  zero = jnp.float32(0)
  zeros = ((zero, zero), jax.tree.map(jnp.zeros_like, state.params))
  weighted_rows = (rows, token_weights(rows, normalize_constant))
  ((value, balance), gradient), _ = jax.lax.scan(
    add, zeros, split(weighted_rows, microbatches)
  )
  updates, opt_state = learner.optimizer.update(gradient, state.opt_state, state.params)
  params, grad_norm = optax.apply_updates(state.params, updates), optax.tree.norm(gradient)
  finite = all_finite(value, grad_norm, optax.tree.norm(params))
  before = state.params, state.opt_state
  params, opt_state = take_if(finite, (params, opt_state), before)
  state = state.advance(params=params, opt_state=opt_state)
  metrics = {
    "loss": value,
    "grad_norm": grad_norm,
    "param_norm": optax.tree.norm(params),
    "update/skipped": jnp.sum(~finite),
    "demonstrations": jnp.sum(jnp.max(rows.segments, axis=-1)),
    "tokens/learned": jnp.sum(rows.learned),
    "tokens/padding": jnp.mean(rows.segments == 0),
  }
  if learner.config.router_aux_coef:
    metrics["loss/router_balance"] = balance
  return state, metrics
