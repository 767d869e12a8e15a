"""One optimizer step: the objective, its gradient over microbatches, and the update."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from pgax.algorithms import LossSums, loss
from pgax.distributed.microbatches import join, split
from pgax.learner.finite import all_finite, take_if
from pgax.learner.forward import critic_outputs, policy_outputs
from pgax.learner.learner import Learner
from pgax.models import lora
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
  learner: Learner,
  params: Trained,
  base: PyTree,
  batch: Batch,
  kl_coef: Array,
  router_weights: Array | None = None,
  entropy_coef: Array | float = 0.0,
) -> tuple[Array, tuple[StepSums, Array]]:
  """Computes the loss of a batch, or of a microbatch, by one forward pass.

  Args:
    trained: parameters to differentiate; `policy` is empty if only the critic is trained.
    learner: model, algorithm and settings.
    params: parameters of policy and critic; used where `trained` is empty.
    base: frozen parameters under adapters; empty without adapters.
    batch: a batch from `prepare`, or some of its prompts.
    kl_coef: coefficient of a KL penalty in the loss.
    router_weights: `[X]` from `routing.balance_weights`; None without that loss.
    entropy_coef: coefficient of an entropy bonus.

  Returns:
    The loss, and the sums and log-probabilities `[N, G, T]` that it is made of.
  """
  policy = trained.policy if learner.learn_policy else params.policy
  policy = lora.attach(learner.lora, base, policy)
  experts = batch.experts if learner.config.router_replay else None
  logp, entropy, load = policy_outputs(
    learner.model, policy, batch, learner.temperature, learner.config.logit_chunk, experts
  )
  outputs = None
  if learner.critic:
    outputs = critic_outputs(learner.critic, trained.critic, batch)
  bonus = entropy if learner.algorithm.entropy else None
  total, terms = loss(learner.algorithm, logp, batch, kl_coef, outputs, bonus, entropy_coef)
  balance = jnp.float32(0)
  if router_weights is not None:
    balance = jnp.sum(router_weights * load.probability)
    total = total + learner.config.router_aux_coef * balance
  sums = StepSums(total, terms, masked_sum(entropy, batch.loss_mask), balance)
  return total, (sums, logp)


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
  gradient_of = jax.value_and_grad(policy_objective, has_aux=True)
  dtype = learner.config.grad_dtype

  def add(total: tuple[Trained, StepSums], microbatch: Batch) -> tuple[tuple, Array]:
    (_, (sums, logp)), gradient = gradient_of(
      trained, learner, params, base, microbatch, kl_coef, router_weights, entropy_coef
    )
    gradient = jax.tree.map(lambda x: x.astype(dtype), gradient)
    return jax.tree.map(jnp.add, total, (gradient, sums)), logp

  zero = jnp.float32(0)
  no_sums = StepSums(zero, LossSums(*[zero] * len(LossSums._fields)), zero, zero)
  zeros = (jax.tree.map(lambda x: jnp.zeros(x.shape, dtype), trained), no_sums)
  microbatches = split(batch, learner.config.microbatches)
  (gradient, sums), logp = jax.lax.scan(add, zeros, microbatches)
  gradient = jax.tree.map(lambda x: x.astype(jnp.float32), gradient)
  return gradient, sums, join(logp)


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
