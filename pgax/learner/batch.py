"""The batch of an update: forward passes before the first step, and `prepare`."""

import jax

from pgax.algorithms import prepare
from pgax.learner.chunked_head import Head, chunked_head, entropy
from pgax.learner.forward import read_batch_prompts
from pgax.learner.learner import Learner
from pgax.learner.microbatches import Microbatch, map_rows, plan_rows
from pgax.learner.state import TrainState
from pgax.models import lora
from pgax.models.prompts import read_completions
from pgax.models.scoring import completion_outputs
from pgax.ops import logprobs
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
    A `Batch`; `old_logp` is None if nothing uses it.

  Raises:
    ValueError: if the rollout lacks experts that the settings need.
  """
  algorithm, replay = learner.algorithm, learner.config.router_replay
  if learner.config.needs_experts and rollout.experts is None:
    raise ValueError(
      "rollout.experts is None; learner.router_aux_coef and learner.router_replay need "
      "them, from a decoder with experts and a sampler with record_experts"
    )

  old_logp = entropies = values = end_values = None
  if algorithm.token_filter:
    heads = logprobs.token_logp, entropy
    old_logp, entropies = _policy_pass(learner, state, state.params, rollout, replay, heads)
  elif algorithm.needs_old_logp:
    (old_logp,) = _policy_pass(learner, state, state.params, rollout, replay)
  frozen_logp = {  # whose routers choose on their own
    name: _policy_pass(learner, state, params, rollout)[0]
    for name, params in state.frozen.items()
  }
  if learner.critic:
    values, end_values = _critic_pass(learner, state.critic_params, rollout)
  return prepare(
    algorithm,
    rollout,
    feedback,
    old_logp,
    frozen_logp=frozen_logp,
    kl_coef=kl_coef,
    baseline=state.algorithm_state.get("baseline"),
    values=values,
    end_values=end_values,
    entropy=entropies,
  )


def _policy_pass(
  learner: Learner,
  state: TrainState,
  params: PyTree,
  rollout: Rollout,
  replay: bool = False,
  heads: tuple[Head, ...] = (logprobs.token_logp,),
) -> tuple[Array, ...]:
  """Computes heads `[N, G, T]` of completions under a policy."""
  model, plan = learner.model, plan_rows(learner, rollout.tokens.shape)
  params = lora.attach(learner.lora, state.base, params)
  states, _ = read_batch_prompts(plan, model, params, rollout, replay)

  def outputs(part: Microbatch) -> tuple[Array, ...]:
    tokens = part.tokens(replay)
    hidden, _ = read_completions(model, params, states, tokens)
    return chunked_head(
      model,
      params,
      hidden,
      tokens.tokens,
      heads,
      temperature=learner.temperature,
      chunk=learner.config.logit_chunk,
    )

  return map_rows(plan, outputs, rollout)


def _critic_pass(
  learner: Learner, params: PyTree, rollout: Rollout
) -> tuple[Array, Array | None]:
  """Values before every token, and after the last one if the algorithm needs them."""
  algorithm, critic = learner.algorithm, learner.critic
  plan = plan_rows(learner, rollout.tokens.shape)
  states, _ = read_batch_prompts(plan, critic, params, rollout)

  def outputs(part: Microbatch) -> tuple[Array, Array | None]:
    return completion_outputs(
      critic, params, states, part.tokens(), to_end=algorithm.bootstraps
    )

  return jax.tree.map(algorithm.critic.loss.values, map_rows(plan, outputs, rollout))
