"""The jitted train step: one update of policy and critic on a scored rollout."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from pgax.algorithms import LossSums, loss, prepare
from pgax.models import lora
from pgax.ops import kl
from pgax.ops.masking import lengths, masked_sum
from pgax.training.diagnostics import batch_metrics, update_metrics
from pgax.training.forward import join, split, token_logp, token_outputs
from pgax.training.learner import Learner
from pgax.training.state import TrainState, step_keys
from pgax.types import Array, Batch, Feedback, PyTree, Rollout


class Update(NamedTuple):
  """What a train step tells of itself.

  Attributes:
    metrics: scalars under the names they are logged by.
    advantages: `[N, G, T]`, as the update used them.
  """

  metrics: dict[str, Array]
  advantages: Array


class _Learned(NamedTuple):
  """What an optimizer step changes, of the policy (or its adapters) and of the critic."""

  policy: PyTree
  critic: PyTree


class _Sums(NamedTuple):
  """What microbatches add up to."""

  gradient: _Learned
  loss: Array
  parts: LossSums
  entropy: Array


def make_train_step(
  learner: Learner,
  *,
  microbatches: int = 1,
  temperature: float = 1.0,
  chunk: int = 128,
  learn_policy: bool = True,
  shardings: TrainState | None = None,
) -> Callable[[TrainState, Rollout, Feedback], tuple[TrainState, Update]]:
  """Builds the reinforcement step.

  Args:
    learner: what learns, and how.
    microbatches: parts that an optimizer step's gradient is summed up from.
    temperature: of the policy.
    chunk: positions whose logits stand in memory at a time; see `completion_logp`.
    learn_policy: whether the policy learns; without it the critic alone does.
    shardings: of the state (see `shardings_of`). What comes out is then laid out as
      what went in, and the second step is the first one's program.

  Returns:
    A jitted function of the state (donated), a `Rollout` and its `Feedback` to the next
    state and an `Update`.

  Raises:
    ValueError: if nothing would learn.
  """
  model, algorithm, critic = learner.model, learner.algorithm, learner.critic
  if not learn_policy and critic is None:
    raise ValueError(
      "learn_policy is False and the algorithm has no critic: nothing learns"
    )

  def in_parts(function: Callable[[Rollout], Array], rollout: Rollout) -> Array:
    return join(jax.lax.map(function, split(rollout, microbatches)))

  def logp_of(params: PyTree, part: Rollout | Batch) -> tuple[Array, Array]:
    return token_logp(model, params, part, temperature, chunk)

  def score(params: PyTree, rollout: Rollout) -> Array:
    return in_parts(lambda part: logp_of(params, part)[0], rollout)

  def estimate(params: PyTree, rollout: Rollout) -> Array:
    outputs = in_parts(lambda part: token_outputs(critic, params, part), rollout)
    return algorithm.critic.loss.values(outputs)

  def objective(
    critic_params, params, base, part: Batch, coef: Array
  ) -> tuple[Array, tuple]:
    logp, entropy = logp_of(lora.apply(learner.lora, base, params), part)
    outputs = token_outputs(critic, critic_params, part) if critic else None
    total, sums = loss(algorithm, logp, part, coef, outputs)
    return total, (sums, masked_sum(entropy, part.mask))

  # What does not learn is not differentiated, so its backward pass is never computed.
  differentiate = jax.value_and_grad(objective, (0, 1) if learn_policy else (0,), True)

  def optimizer_step(
    params: _Learned, opt_state: _Learned, base: PyTree, batch: Batch, coef: Array
  ) -> tuple:
    """One optimizer step, its gradient summed up over microbatches."""
    learned = params if learn_policy else params._replace(policy=())

    def add(total: _Sums, part: Batch) -> tuple[_Sums, None]:
      (value, (parts, entropy)), found = differentiate(
        params.critic, params.policy, base, part, coef
      )
      gradient = _Learned(found[1] if learn_policy else (), found[0])
      return jax.tree.map(jnp.add, total, _Sums(gradient, value, parts, entropy)), None

    zero = jnp.float32(0)
    parts = LossSums(*[zero] * len(LossSums._fields))
    zeros = _Sums(jax.tree.map(jnp.zeros_like, learned), zero, parts, zero)
    sums, _ = jax.lax.scan(add, zeros, split(batch, microbatches))
    norms = _Learned(*map(optax.tree.norm, sums.gradient))
    policy, critic_side = (
      (params.policy, opt_state.policy),
      (params.critic, opt_state.critic),
    )
    there = jnp.any(batch.mask)
    if learn_policy:
      policy = _apply(learner.optimizer, sums.gradient.policy, *policy, there)
    if critic:
      critic_side = _apply(
        learner.value_optimizer, sums.gradient.critic, *critic_side, there
      )
    params, opt_state = (_Learned(*both) for both in zip(policy, critic_side, strict=True))
    return params, opt_state, (sums._replace(gradient=()), norms)

  def update(state: TrainState, batch: Batch, coef: Array) -> tuple:
    """All optimizer steps of an update."""
    _, key = step_keys(state.key, state.step)
    count, prompts = algorithm.minibatches, batch.tokens.shape[0]
    # Weights are those of the global batch. A minibatch holds a part of their sum, so it is
    # scaled up to estimate the same loss.
    scaled = batch.replace(weights=batch.weights * count)
    if batch.imitation is not None:
      scaled = scaled.replace(imitation=batch.imitation * count)

    def minibatch(carry: tuple, rows: Array) -> tuple:
      # With one minibatch the order can't matter.
      some = scaled if count == 1 else jax.tree.map(lambda x: x[rows], scaled)
      *carry, told = optimizer_step(*carry, state.base, some, coef)
      return tuple(carry), told

    keys = jax.random.split(key, algorithm.epochs)
    orders = jax.vmap(lambda k: jax.random.permutation(k, prompts))(keys)
    params = _Learned(state.params, state.critic_params)
    opt_state = _Learned(state.opt_state, state.critic_opt_state)
    return jax.lax.scan(
      minibatch, (params, opt_state), orders.reshape(-1, prompts // count)
    )

  out_shardings = None if shardings is None else (shardings, None)

  @functools.partial(jax.jit, donate_argnums=0, out_shardings=out_shardings)
  def train_step(
    state: TrainState, rollout: Rollout, feedback: Feedback
  ) -> tuple[TrainState, Update]:
    policy, reference = (
      lora.apply(learner.lora, state.base, trained)
      for trained in (state.params, state.ref_params)
    )
    old_logp, ref_logp = score(policy, rollout), score(reference, rollout)
    penalty, baseline = algorithm.kl, algorithm.baseline
    coef = penalty.controller.value(state.kl_state) if penalty else jnp.float32(0)
    batch = prepare(
      algorithm,
      rollout,
      feedback,
      old_logp,
      ref_logp,
      kl_coef=coef,
      baseline=state.baseline_state if baseline else None,
      values=estimate(state.critic_params, rollout) if critic else None,
    )
    (params, opt_state), (sums, norms) = update(state, batch, coef)
    tokens = jnp.sum(batch.mask) * algorithm.epochs
    metrics = {
      "loss": jnp.mean(sums.loss),
      "grad_norm": jnp.mean(norms.policy),
      "param_norm": optax.tree.norm(params.policy),
      "kl/coef": coef,
      **update_metrics(algorithm, sums.parts, sums.entropy, tokens),
      **batch_metrics(algorithm, batch, rollout),
    }
    if critic:
      metrics["value/grad_norm"] = jnp.mean(norms.critic)
      metrics["value/param_norm"] = optax.tree.norm(params.critic)
    state = state.replace(
      step=state.step + 1,
      params=params.policy,
      opt_state=opt_state.policy,
      critic_params=params.critic,
      critic_opt_state=opt_state.critic,
    )
    # Where the policy stands still there is nothing for these to react to.
    if penalty and learn_policy:
      last = sums.parts.moved[-algorithm.minibatches :]  # after the last pass
      told = _divergence(batch) if penalty.anchor == "reference" else jnp.sum(last)
      count = jnp.sum(lengths(batch.mask) > 0)
      per_completion = told / jnp.maximum(count, 1)
      kl_state = penalty.controller.update(state.kl_state, per_completion, count)
      state = state.replace(kl_state=kl_state)
    if baseline:
      moved = baseline.update(state.baseline_state, batch.rewards, batch.valid)
      state = state.replace(baseline_state=moved)
    return state, Update(metrics, batch.advantages)

  return train_step


def _apply(
  optimizer: optax.GradientTransformation,
  gradient: PyTree,
  params: PyTree,
  opt_state: PyTree,
  there: Array,
) -> tuple[PyTree, PyTree]:
  """Parameters and optimizer state after one step.

  Where nothing is there to learn from, momentum does not move them either.
  """
  updates, moved = optimizer.update(gradient, opt_state, params)
  after = (optax.apply_updates(params, updates), moved)
  return jax.tree.map(lambda a, b: jnp.where(there, a, b), after, (params, opt_state))


def _divergence(batch: Batch) -> Array:
  """The divergence from the reference before the update, summed over completions."""
  return masked_sum(kl.k1(batch.old_logp, batch.ref_logp), batch.mask)
