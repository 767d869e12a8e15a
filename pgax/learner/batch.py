"""The batch of an update: forward passes before the first step, and `prepare`."""

from collections.abc import Callable

import jax

from pgax.algorithms import prepare
from pgax.learner.forward import (
  PolicyOutputs,
  critic_outputs,
  critic_outputs_to_end,
  policy_outputs,
  read_batch_prompts,
)
from pgax.learner.learner import Learner
from pgax.learner.rows import Microbatch, map_rows, plan_rows
from pgax.learner.state import TrainState
from pgax.models import lora
from pgax.types import Array, Batch, Feedback, PyTree, Rollout


def make_batch(
  learner: Learner,
  state: TrainState,
  rollout: Rollout,
  feedback: Feedback,
  kl_coef: Array,
) -> Batch:
  """Prepares the batch of an update, with the forward passes that its algorithm needs.

  Args:
    learner: model, algorithm and settings.
    state: state before the step.
    rollout: completions `[N, G, T]`.
    feedback: their rewards.
    kl_coef: coefficient of a KL penalty in the reward.

  Returns:
    A `Batch`; `old_logp` and `ref_logp` are None if nothing uses them.

  Raises:
    ValueError: if the rollout lacks experts that the settings need.
  """
  algorithm, replay = learner.algorithm, learner.config.router_replay
  if learner.config.needs_experts and rollout.experts is None:
    raise ValueError(
      "rollout.experts is None; learner.router_aux_coef and learner.router_replay need "
      "them, from a decoder with experts and a sampler with record_experts"
    )

  def under(params: PyTree, replay: bool, read: Callable[[PolicyOutputs], PyTree]):
    return _policy_pass(learner, state.base, params, rollout, replay, read)

  old_logp = entropy = values = end_values = ref_logp = None
  if algorithm.token_filter:
    old_logp, entropy = under(state.params, replay, lambda x: (x.logp, x.entropy))
  elif algorithm.needs_old_logp:
    old_logp = under(state.params, replay, lambda x: x.logp)
  if learner.has_reference:  # its router chooses on its own
    ref_logp = under(state.ref_params, False, lambda x: x.logp)
  if learner.critic:
    values, end_values = _critic_pass(learner, state.critic_params, rollout)
  return prepare(
    algorithm,
    rollout,
    feedback,
    old_logp,
    ref_logp,
    kl_coef=kl_coef,
    baseline=state.algorithm_state.get("baseline"),
    values=values,
    end_values=end_values,
    entropy=entropy,
  )


def _policy_pass(
  learner: Learner,
  base: PyTree,
  params: PyTree,
  rollout: Rollout,
  replay: bool,
  read: Callable[[PolicyOutputs], PyTree],
) -> PyTree:
  """Computes what is read of a policy's outputs, in arrays `[N, G, T]`."""
  plan = plan_rows(learner, rollout.tokens.shape)
  params = lora.attach(learner.lora, base, params)
  temperature, chunk = learner.temperature, learner.config.logit_chunk
  experts = rollout.experts.prompt if replay else None
  states = read_batch_prompts(plan, learner.model, params, rollout, experts)

  def outputs(part: Microbatch) -> PyTree:
    experts = part.completions.experts.completion if replay else None
    return read(
      policy_outputs(learner.model, params, states, part, temperature, chunk, experts)
    )

  return map_rows(plan, outputs, rollout)


def _critic_pass(
  learner: Learner, params: PyTree, rollout: Rollout
) -> tuple[Array, Array | None]:
  """Values before every token, and after the last one if the algorithm needs them."""
  algorithm, critic = learner.algorithm, learner.critic
  plan = plan_rows(learner, rollout.tokens.shape)
  states = read_batch_prompts(plan, critic, params, rollout)
  forward = critic_outputs_to_end if algorithm.bootstraps else critic_outputs
  outputs = map_rows(plan, lambda part: forward(critic, params, states, part), rollout)
  values = jax.tree.map(algorithm.critic.loss.values, outputs)
  return values if algorithm.bootstraps else (values, None)
