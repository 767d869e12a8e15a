"""The policy step: one update of policy and critic on a scored rollout."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax

from pgax.algorithms.stateful import StepSignals
from pgax.learner.batch import make_batch
from pgax.learner.gradients import (
  StepOutputs,
  Trained,
  UpdateInputs,
  optimizer_step,
)
from pgax.learner.learner import Learner
from pgax.learner.metrics import (
  batch_metrics,
  mean_of_steps,
  per_completion,
  update_metrics,
)
from pgax.learner.state import TrainState
from pgax.learner.update import Update
from pgax.models.routing import balance_weights, count_choices
from pgax.ops.masking import lengths
from pgax.types import Array, Batch, Feedback, PyTree, Rollout, step_keys


def make_policy_step(
  learner: Learner, shardings: TrainState | None = None
) -> Callable[[TrainState, Rollout, Feedback], tuple[TrainState, Update]]:
  """Jits `policy_step` for a learner; the state is donated.

  Args:
    learner: model, algorithm and settings.
    shardings: shardings of the state. With the same shardings in and out, the second step
      reuses the first one's program.

  Returns:
    A function of a state, a `Rollout` and its `Feedback`.
  """
  return jax.jit(
    functools.partial(policy_step, learner),
    donate_argnums=0,
    out_shardings=None if shardings is None else (shardings, None),
  )


def policy_step(
  learner: Learner, state: TrainState, rollout: Rollout, feedback: Feedback
) -> tuple[TrainState, Update]:
  """Updates policy and critic on a scored rollout, minibatch by minibatch.

  With a `target_kl` the update ends at the first minibatch whose mean divergence from the
  old policy exceeds it: that step is not taken, and later ones are not computed.

  Args:
    learner: model, algorithm and settings.
    state: state before the step.
    rollout: completions `[N, G, T]`.
    feedback: their rewards.

  Returns:
    The next state, and an `Update`.
  """
  algorithm = learner.algorithm
  states, kl_coef, entropy_coef = state.algorithm_state, jnp.float32(0), jnp.float32(0)
  if algorithm.kl is not None:
    kl_coef = algorithm.kl.value(states["kl"])
  if algorithm.entropy is not None:
    entropy_coef = algorithm.entropy.value(states["entropy"])
  batch = make_batch(learner, state, rollout, feedback, kl_coef)
  this = _inputs(learner, state, batch, kl_coef, entropy_coef)
  step = functools.partial(optimizer_step, this)
  start = (
    Trained(state.params, state.critic_params),
    Trained(state.opt_state, state.critic_opt_state),
  )
  if algorithm.stops_early:
    step, start = _until_stopped(step), (start, jnp.bool_(False))
  carry, outputs = jax.lax.scan(step, start, _orders(learner, state, len(batch.tokens)))
  params, opt_state = carry[0] if algorithm.stops_early else carry
  old_logp = outputs.logp[0] if batch.old_logp is None else batch.old_logp
  metrics = {
    "param_norm": optax.tree.norm(params.policy),
    "kl/coef": kl_coef,
    **_step_metrics(learner, outputs),
    **batch_metrics(algorithm, batch, old_logp),
  }
  metrics |= per_completion(metrics, batch.loss_mask)
  if algorithm.entropy:
    metrics["entropy/coef"] = entropy_coef
  if learner.critic:
    metrics["value/param_norm"] = optax.tree.norm(params.critic)
  state = state.advance(
    params=params.policy,
    opt_state=opt_state.policy,
    critic_params=params.critic,
    critic_opt_state=opt_state.critic,
    algorithm_state=algorithm.update(states, _signals(learner, batch, outputs, old_logp)),
  )
  return state, Update(metrics, batch.advantages)


def _inputs(
  learner: Learner, state: TrainState, batch: Batch, kl_coef: Array, entropy_coef: Array
) -> UpdateInputs:
  """Collects what all optimizer steps share.

  Weights are those of the global batch. A minibatch holds a part of their sum, so it is
  scaled up to estimate the same loss.
  """
  router_weights, count = _router_weights(learner, batch), learner.algorithm.minibatches
  scaled = batch.replace(weights=batch.weights * count)
  if batch.nll_weights is not None:
    scaled = scaled.replace(nll_weights=batch.nll_weights * count)
  return UpdateInputs(learner, state.base, scaled, kl_coef, entropy_coef, router_weights)


def _orders(learner: Learner, state: TrainState, rows: int) -> Array:
  """Draws the rows of each optimizer step: `[epochs * minibatches, rows // minibatches]`.

  Every minibatch has as many of the padding rows, so that the others are divided in the
  same way on any number of devices.
  """
  algorithm, prompts = learner.algorithm, learner.prompts or rows
  _, key = step_keys(state.key, state.total_steps)
  count = algorithm.minibatches
  if prompts > rows or prompts % count:  # the latter are equal on no number of devices
    prompts = rows
  keys = jax.random.split(key, algorithm.epochs)
  orders = jax.vmap(lambda k: jax.random.permutation(k, prompts))(keys)
  orders = orders.reshape(len(keys) * count, -1)
  padding = jnp.arange(prompts, rows).reshape(count, -1)
  return jnp.concatenate([orders, jnp.tile(padding, (len(keys), 1))], axis=1)


def _until_stopped(optimizer_step: Callable) -> Callable:
  """Wraps a step of a scan so that nothing is computed once one of them has stopped."""

  def step(carry: tuple[PyTree, Array], rows: Array) -> tuple:
    trained, stopped = carry
    _, shapes = jax.eval_shape(optimizer_step, trained, rows)
    nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    trained, outputs = jax.lax.cond(
      stopped, lambda: (trained, nothing), lambda: optimizer_step(trained, rows)
    )
    return (trained, stopped | outputs.stopped), outputs

  return step


def _router_weights(learner: Learner, batch: Batch) -> Array | None:
  """Weights of the load-balancing loss, by the choices of the rollout; None without it."""
  if not learner.config.router_aux_coef or not learner.learn_policy:
    return None
  parts = (
    (batch.experts.prompt, batch.prompt_mask),
    (batch.experts.completion, batch.token_mask),
  )
  experts = learner.model.config.num_experts
  counts = [count_choices(choices, mask, experts) for choices, mask in parts]
  chosen, tokens = (sum(x) for x in zip(*counts, strict=True))
  # Like all weights, they are scaled up for a minibatch, which is a part of the batch.
  return balance_weights(chosen, tokens) * learner.algorithm.minibatches


def _step_metrics(learner: Learner, outputs: StepOutputs) -> dict[str, Array]:
  sums, tokens, algorithm = outputs.sums, jnp.sum(outputs.tokens), learner.algorithm
  computed = outputs.computed if algorithm.stops_early else None
  metrics = {
    "loss": mean_of_steps(sums.loss, computed),
    "grad_norm": mean_of_steps(outputs.norms.policy, computed),
    "update/skipped": jnp.sum(outputs.skipped),
    "update/optimizer_steps": jnp.sum(outputs.taken),
    **update_metrics(algorithm, sums.terms, sums.entropy, tokens, computed),
  }
  if learner.config.router_aux_coef:
    metrics["loss/router_balance"] = mean_of_steps(sums.balance, computed)
  if learner.critic:
    metrics["value/grad_norm"] = mean_of_steps(outputs.norms.critic, computed)
  return metrics


def _signals(
  learner: Learner, batch: Batch, outputs: StepOutputs, old_logp: Array
) -> StepSignals:
  """Collects what the stateful parts of the algorithm learn from."""
  sums, passes = outputs.sums, learner.algorithm.minibatches
  return StepSignals(
    batch=batch,
    old_logp=old_logp,
    entropy=jnp.sum(sums.entropy) / jnp.maximum(jnp.sum(outputs.tokens), 1),
    kl_old=jnp.sum(sums.terms.kl_old[-passes:]),  # over the last epoch
    completions=jnp.sum(lengths(batch.loss_mask) > 0),
    policy_learns=learner.learn_policy,
  )
