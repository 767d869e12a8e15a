"""One optimizer step: the objective, its gradient over microbatches, and the update."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from pgax.algorithms import LossSums, loss
from pgax.learner.chunked_head import chunked_head
from pgax.learner.forward import read_batch_prompts
from pgax.learner.learner import Learner
from pgax.learner.microbatches import (
  Microbatch,
  RowPlan,
  divide,
  in_units,
  plan_rows,
  resized,
)
from pgax.models import lora
from pgax.models.prompts import read_completions
from pgax.models.scoring import completion_outputs
from pgax.ops.finite import all_finite, take_if
from pgax.ops.masking import masked_sum
from pgax.types import Array, Batch, PyTree


class Trained(NamedTuple):
  """A pytree for the policy (or its adapters) and one for the critic."""

  policy: PyTree
  critic: PyTree


class StepSums(NamedTuple):
  """Sums over the tokens of an optimizer step's batch.

  Attributes:
    loss: the loss.
    terms: sums of its terms.
    entropy: entropy of the policy, in nats.
    balance: load-balancing loss of the router, without its coefficient.
  """

  loss: Array
  terms: LossSums
  entropy: Array
  balance: Array


def policy_objective(
  trained: Trained,
  states: Trained,
  part: Microbatch,
  *,
  width: int,
  plan: RowPlan,
  learner: Learner,
  params: Trained,
  base: PyTree,
  kl_coef: Array,
  router_weights: Array | None = None,
  entropy_coef: Array | float = 0.0,
) -> tuple[Array, tuple[StepSums, Array]]:
  """Computes the loss of a microbatch by one forward pass.

  Args:
    trained: parameters to differentiate; `policy` is empty if only the critic is trained.
    states: `PromptStates` under policy and critic, to differentiate as well.
    part: completions of a batch from `prepare`, in arrays `[A, M, T]`.
    width: number of tokens that they are cut to, which holds all of them.
    plan: how the batch is divided.
    learner: model, algorithm and settings.
    params: parameters of policy and critic; used where `trained` is empty.
    base: frozen parameters under adapters; empty without adapters.
    kl_coef: coefficient of a KL penalty in the loss.
    router_weights: `[X]` from `routing.balance_weights`; None without that loss.
    entropy_coef: coefficient of an entropy bonus.

  Returns:
    The loss, and the sums and log-probabilities `[A, M, T]` that it is made of. The
    balance is that of the completions alone.
  """
  model, config = learner.model, learner.config
  length, part = part.completions.tokens.shape[-1], part.cut(width)
  policy, batch = trained.policy, part.completions
  if not learner.learn_policy:  # neither it nor what it read is differentiated
    policy = params.policy
    states = states._replace(policy=jax.lax.stop_gradient(states.policy))
  policy = lora.attach(learner.lora, base, policy)
  tokens = part.tokens(config.router_replay)
  hidden, load = read_completions(model, policy, states.policy, tokens)
  logp, entropy = chunked_head(
    model,
    policy,
    hidden,
    batch.tokens,
    temperature=learner.temperature,
    chunk=config.logit_chunk,
  )
  values = None
  if learner.critic:
    values, _ = completion_outputs(
      learner.critic, trained.critic, states.critic, part.tokens()
    )
  bonus = entropy if learner.algorithm.entropy else None
  compared = in_units(plan, (logp, batch, values, bonus))
  total, terms = loss(
    learner.algorithm, *compared[:2], kl_coef, *compared[2:], entropy_coef=entropy_coef
  )
  balance = jnp.float32(0)
  if router_weights is not None:
    balance = jnp.sum(router_weights * load.probability)
    total = total + config.router_aux_coef * balance
  sums = StepSums(total, terms, masked_sum(entropy, batch.loss_mask), balance)
  return total, (sums, resized(logp, length))


def accumulate_gradients(
  learner: Learner,
  params: Trained,
  base: PyTree,
  batch: Batch,
  kl_coef: Array,
  router_weights: Array | None = None,
  entropy_coef: Array | float = 0.0,
) -> tuple[Trained, StepSums, Array]:
  """Sums gradients over the microbatches of an optimizer step.

  Prompts are read first. Every microbatch then gives a gradient of the parameters and one
  of what it took from the prompts, whose sum goes back through the prompts at the end.

  Args:
    learner: model, algorithm and settings.
    params: parameters of policy and critic.
    base: frozen parameters under adapters; empty without adapters.
    batch: batch of the optimizer step.
    kl_coef: coefficient of a KL penalty in the loss.
    router_weights: see `policy_objective`.
    entropy_coef: see `policy_objective`.

  Returns:
    The gradient (`policy` is empty if only the critic is trained), the sums, and the
    log-probabilities `[N, G, T]` before the step, in nats.
  """
  # Parameters that are not trained are not differentiated: no backward pass reaches them.
  trained = params if learner.learn_policy else params._replace(policy=())
  config, plan = learner.config, plan_rows(learner, batch.tokens.shape)

  def read(trained: Trained) -> tuple[Trained, Array, Array]:
    policy = trained.policy if learner.learn_policy else params.policy
    policy = lora.attach(learner.lora, base, policy)
    states, load = read_batch_prompts(
      plan, learner.model, policy, batch, config.router_replay
    )
    critic_states, balance = None, jnp.float32(0)
    if learner.critic:
      critic_states, _ = read_batch_prompts(plan, learner.critic, trained.critic, batch)
    if router_weights is not None:
      balance = jnp.sum(router_weights * load.probability)
    return Trained(states, critic_states), config.router_aux_coef * balance, balance

  (states, value, balance), back_through_prompts = jax.vjp(read, trained)
  settings = {
    "plan": plan,
    "learner": learner,
    "params": params,
    "base": base,
    "kl_coef": kl_coef,
    "router_weights": router_weights,
    "entropy_coef": entropy_coef,
  }
  gradient_of = jax.value_and_grad(policy_objective, argnums=(0, 1), has_aux=True)
  branches = [
    functools.partial(gradient_of, width=width, **settings) for width in plan.widths
  ]
  rows = divide(plan, batch)

  def add_microbatch(total: tuple, order: Array) -> tuple[tuple, Array]:
    part = rows.take(order)
    (_, (sums, logp)), gradients = jax.lax.switch(
      rows.bucket(part), branches, trained, states, part
    )
    gradients = jax.tree.map(lambda x: x.astype(config.grad_dtype), gradients)
    return jax.tree.map(jnp.add, total, (*gradients, sums)), logp

  def zeros(tree: PyTree) -> PyTree:
    return jax.tree.map(lambda x: jnp.zeros(x.shape, config.grad_dtype), tree)

  zero = jnp.float32(0)
  sums = StepSums(value, LossSums(*[zero] * len(LossSums._fields)), zero, balance)
  start = zeros(trained), zeros(states), sums
  (gradient, d_states, sums), logp = jax.lax.scan(add_microbatch, start, rows.order)
  d_states = jax.tree.map(lambda x, like: x.astype(like.dtype), d_states, states)
  (of_prompts,) = back_through_prompts((d_states, jnp.ones_like(value), zero))

  def add_prompts(x: Array, y: Array) -> Array:
    return x.astype(jnp.float32) + y.astype(jnp.float32)

  return jax.tree.map(add_prompts, gradient, of_prompts), sums, rows.put_back(logp)


def apply_update(
  learner: Learner,
  gradient: Trained,
  params: Trained,
  opt_state: Trained,
  value: Array,
  has_tokens: Array,
) -> tuple[Trained, Trained, Array]:
  """Applies one optimizer step to everything that is trained.

  Parameters and optimizer state stay unchanged, momentum included, if the batch has no
  trainable token, or if the loss, a gradient or a parameter after the step is not finite.

  Args:
    learner: optimizers, and whether the policy is trained.
    gradient: gradient of the loss.
    params: parameters before the step.
    opt_state: states of the optimizers before the step.
    value: the loss.
    has_tokens: bool scalar, whether the batch has a trainable token.

  Returns:
    Parameters and optimizer states after the step, and whether it was skipped because
    something was not finite.
  """

  def applied(optimizer: optax.GradientTransformation, name: str) -> tuple[PyTree, PyTree]:
    before = getattr(params, name), getattr(opt_state, name)
    updates, new_opt_state = optimizer.update(getattr(gradient, name), *reversed(before))
    return optax.apply_updates(before[0], updates), new_opt_state

  policy, critic = before = tuple(zip(params, opt_state, strict=True))
  if learner.learn_policy:
    policy = applied(learner.optimizer, "policy")
  if learner.critic:
    critic = applied(learner.critic_optimizer, "critic")
  norms = [optax.tree.norm(tree) for tree in (*gradient, policy[0], critic[0])]
  finite = all_finite(value, *norms)
  policy, critic = take_if(has_tokens & finite, (policy, critic), before)
  skipped = has_tokens & ~finite
  return Trained(policy[0], critic[0]), Trained(policy[1], critic[1]), skipped
