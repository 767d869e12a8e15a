"""The jitted supervised step: imitation of worked solutions."""

import functools
from collections.abc import Callable

import jax
import optax

from pgax.models import lora
from pgax.ops import aggregation
from pgax.ops.masking import masked_sum
from pgax.training.forward import completion_logp
from pgax.training.learner import Learner
from pgax.training.state import TrainState
from pgax.types import Array, PyTree


def make_supervised_step(
  learner: Learner,
  *,
  chunk: int = 128,
  shardings: TrainState | None = None,
) -> Callable[..., tuple[TrainState, dict[str, Array]]]:
  """Builds the supervised step: mean negative log-likelihood of the solutions' tokens.

  Args:
    learner: what learns, with the optimizer of the warm start; its algorithm plays no part.
    chunk: positions whose logits stand in memory at a time; see `completion_logp`.
    shardings: of the state, as for `make_train_step`.

  Returns:
    A jitted function of the state (donated), prompts `[N, P]` with their mask and
    solutions `[N, T]` with theirs, to the next state and its metrics.
  """
  model, optimizer = learner.model, learner.optimizer
  out_shardings = None if shardings is None else (shardings, None)

  @functools.partial(jax.jit, donate_argnums=0, out_shardings=out_shardings)
  def supervised_step(state, prompt_tokens, prompt_mask, tokens, mask):
    tokens, mask = tokens[:, None], mask[:, None]  # a group of one

    def objective(trained: PyTree) -> Array:
      params = lora.apply(learner.lora, state.base, trained)
      logp, _ = completion_logp(
        model, params, prompt_tokens, prompt_mask, tokens, mask, chunk=chunk
      )
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

  return supervised_step
