"""The jitted supervised step: likelihood of worked solutions."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax

from pgax.models import lora
from pgax.ops import aggregation
from pgax.ops.masking import masked_sum
from pgax.training.forward import row_logp, split
from pgax.training.learner import Learner
from pgax.training.state import TrainState
from pgax.types import Array, DemonstrationRows, PyTree


def token_weights(rows: DemonstrationRows, normalize_constant: float = 0.0) -> Array:
  """The weight of every token of a global batch; packing changes nothing about it.

  Args:
    rows: the whole batch.
    normalize_constant: 0 for the mean over all learned tokens (`aggregation.token_mean`);
      otherwise each solution's sum over this, and the mean over solutions
      (`aggregation.fixed_length`, which is CS336's `masked_normalize`).

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
  chunk: int = 128,
  shardings: TrainState | None = None,
) -> Callable[[TrainState, DemonstrationRows], tuple[TrainState, dict[str, Array]]]:
  """Builds the supervised step: weighted negative log-likelihood of the solutions' tokens.

  `loss = sum(w * -logp)`, with the weights of `token_weights`.

  Args:
    learner: what learns, with the optimizer of this stage; its algorithm plays no part.
    normalize_constant: see `token_weights`.
    microbatches: parts that the gradient is summed up from.
    chunk: positions whose logits stand in memory at a time; see `completion_logp`.
    shardings: of the state, as for `make_train_step`.

  Returns:
    A jitted function of the state (donated) and `DemonstrationRows` to the next state and
    its metrics.
  """
  model, optimizer = learner.model, learner.optimizer
  out_shardings = None if shardings is None else (shardings, None)

  def objective(
    trained: PyTree, base: PyTree, rows: DemonstrationRows, weights: Array
  ) -> Array:
    logp = row_logp(model, lora.apply(learner.lora, base, trained), rows, chunk)
    return -masked_sum(weights * logp, rows.learned)

  @functools.partial(jax.jit, donate_argnums=0, out_shardings=out_shardings)
  def supervised_step(state, rows):
    def add(total: tuple, part: tuple) -> tuple[tuple, None]:
      found = jax.value_and_grad(objective)(state.params, state.base, *part)
      return jax.tree.map(jnp.add, total, found), None

    zeros = (jnp.float32(0), jax.tree.map(jnp.zeros_like, state.params))
    whole = (rows, token_weights(rows, normalize_constant))
    (value, gradient), _ = jax.lax.scan(add, zeros, split(whole, microbatches))
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
      "demonstrations": jnp.sum(jnp.max(rows.segments, axis=-1)),
      "tokens/learned": jnp.sum(rows.learned),
      "tokens/padding": jnp.mean(rows.segments == 0),
    }
    return state, metrics

  return supervised_step
