"""One optimizer step: the objective, its gradient over microbatches, and the update."""

import functools
from collections.abc import Callable
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
  this: "UpdateInputs",
  plan: RowPlan,
  params: Trained,
  width: int,
) -> tuple[Array, tuple[StepSums, Array]]:
  """Computes the loss of a microbatch by one forward pass.

  Args:
    trained: parameters to differentiate; `policy` is empty if only the critic is trained.
    states: `PromptStates` under policy and critic, to differentiate as well.
    part: completions of a batch from `prepare`, in arrays `[A, M, T]`.
    this: what all steps of the update share.
    plan: how the batch is divided.
    params: parameters of policy and critic; used where `trained` is empty.
    width: number of tokens that completions are cut to, which holds all of them.

  Returns:
    The loss, and the sums and log-probabilities `[A, M, T]` that it is made of. The
    balance is that of the completions alone.
  """
  learner, model, config = this.learner, this.learner.model, this.learner.config
  length, part = part.completions.tokens.shape[-1], part.cut(width)
  policy, batch = trained.policy, part.completions
  if not learner.learn_policy:  # neither it nor what it read is differentiated
    policy = params.policy
    states = states._replace(policy=jax.lax.stop_gradient(states.policy))
  policy = lora.attach(learner.lora, this.base, policy)
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
    learner.algorithm,
    *compared[:2],
    this.kl_coef,
    *compared[2:],
    entropy_coef=this.entropy_coef,
  )
  balance = jnp.float32(0)
  if this.router_weights is not None:
    balance = jnp.sum(this.router_weights * load.probability)
    total = total + config.router_aux_coef * balance
  sums = StepSums(total, terms, masked_sum(entropy, batch.loss_mask), balance)
  return total, (sums, resized(logp, length))


class StepOutputs(NamedTuple):
  """Outputs of one optimizer step; an update stacks them.

  Attributes:
    sums: sums over the tokens of the step's batch.
    norms: global norms of the gradients.
    skipped: bool, whether the step was not taken because something was not finite.
    taken: bool, whether the step changed the parameters.
    stopped: bool, whether the update ends here because of its divergence, untaken.
    computed: bool, false for steps after that, all of whose outputs are 0.
    tokens: number of trained tokens.
    logp: `[N, G, T]` log-probabilities before the step, in nats; None if a separate pass
      computed them.
  """

  sums: StepSums
  norms: Trained
  skipped: Array
  taken: Array
  stopped: Array
  computed: Array
  tokens: Array
  logp: Array | None


class UpdateInputs(NamedTuple):
  """What all optimizer steps of an update share.

  Attributes:
    learner: model, algorithm and settings.
    base: frozen parameters under adapters; empty without adapters.
    batch: batch of the whole update, with weights scaled up for minibatches.
    kl_coef: coefficient of a KL penalty in the loss.
    entropy_coef: coefficient of an entropy bonus.
    router_weights: `[X]` from `routing.balance_weights`; None without that loss.
  """

  learner: Learner
  base: PyTree
  batch: Batch
  kl_coef: Array
  entropy_coef: Array | float = 0.0
  router_weights: Array | None = None


def optimizer_step(
  this: UpdateInputs, carry: tuple[Trained, Trained], rows: Array
) -> tuple[tuple[Trained, Trained], StepOutputs]:
  """Takes one optimizer step on a minibatch; the body of a scan over minibatches.

  Prompts are read first. Every microbatch then gives a gradient of the parameters and one
  of what it took from the prompts, whose sum goes back through the prompts at the end.

  Args:
    this: what all steps of the update share.
    carry: parameters, and states of the optimizers.
    rows: indices of the minibatch's prompts.

  Returns:
    The next `carry`, and the outputs of the step.
  """
  learner, (params, opt_state) = this.learner, carry
  algorithm, dtype = learner.algorithm, learner.config.grad_dtype
  batch = this.batch  # with one minibatch the order can't matter
  if algorithm.minibatches > 1:
    batch = jax.tree.map(lambda x: x[rows], batch)
  # Parameters that are not trained are not differentiated: no backward pass reaches them.
  trained = params if learner.learn_policy else params._replace(policy=())
  plan = plan_rows(learner, batch.tokens.shape)
  read = functools.partial(_read_prompts, this, plan, params, batch)
  (states, value, balance), back_through_prompts = jax.vjp(read, trained)
  microbatches, branches = divide(plan, batch), _branches(this, plan, params)

  def add_microbatch(total: tuple, order: Array) -> tuple[tuple, Array]:
    part = microbatches.take(order)
    (_, (sums, logp)), gradients = jax.lax.switch(
      microbatches.bucket(part), branches, trained, states, part
    )
    gradients = jax.tree.map(lambda x: x.astype(dtype), gradients)
    return jax.tree.map(jnp.add, total, (*gradients, sums)), logp

  zero, zeros = jnp.float32(0), functools.partial(_zeros, dtype)
  sums = StepSums(value, LossSums(*[zero] * len(LossSums._fields)), zero, balance)
  start = zeros(trained), zeros(states), sums
  (d_trained, d_states, sums), logp = jax.lax.scan(
    add_microbatch, start, microbatches.order
  )
  d_states = jax.tree.map(lambda x, like: x.astype(like.dtype), d_states, states)
  (d_prompts,) = back_through_prompts((d_states, jnp.ones_like(value), zero))
  gradient = jax.tree.map(_add_wide, d_trained, d_prompts)
  tokens, stopped = jnp.sum(batch.loss_mask), jnp.bool_(False)
  if algorithm.stops_early:
    stopped = sums.terms.kl_old > algorithm.target_kl * tokens
  applies = (tokens > 0) & ~stopped
  *carry, skipped = apply_update(learner, gradient, params, opt_state, sums.loss, applies)
  return tuple(carry), StepOutputs(
    sums=sums,
    norms=Trained(*map(optax.tree.norm, gradient)),
    skipped=skipped,
    taken=applies & ~skipped,
    stopped=stopped,
    computed=jnp.bool_(True),
    tokens=tokens,
    logp=microbatches.put_back(logp) if batch.old_logp is None else None,
  )


def _read_prompts(
  this: UpdateInputs, plan: RowPlan, params: Trained, batch: Batch, trained: Trained
) -> tuple[Trained, Array, Array]:
  """Reads the prompts with policy and critic.

  Returns:
    `PromptStates` under each, None for a critic that there is not; the load-balancing loss
    of the prompts with its coefficient, and without.
  """
  learner, config = this.learner, this.learner.config
  policy = trained.policy if learner.learn_policy else params.policy
  policy = lora.attach(learner.lora, this.base, policy)
  states, load = read_batch_prompts(
    plan, learner.model, policy, batch, config.router_replay
  )
  critic_states, balance = None, jnp.float32(0)
  if learner.critic:
    critic_states, _ = read_batch_prompts(plan, learner.critic, trained.critic, batch)
  if this.router_weights is not None:
    balance = jnp.sum(this.router_weights * load.probability)
  return Trained(states, critic_states), config.router_aux_coef * balance, balance


def _branches(this: UpdateInputs, plan: RowPlan, params: Trained) -> list[Callable]:
  """Returns the gradient of a microbatch at each width."""
  gradient_of = jax.value_and_grad(policy_objective, argnums=(0, 1), has_aux=True)
  return [
    functools.partial(gradient_of, this=this, plan=plan, params=params, width=width)
    for width in plan.widths
  ]


def _zeros(dtype: str, tree: PyTree) -> PyTree:
  return jax.tree.map(lambda x: jnp.zeros(x.shape, dtype), tree)


def _add_wide(x: Array, y: Array) -> Array:
  return x.astype(jnp.float32) + y.astype(jnp.float32)


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
