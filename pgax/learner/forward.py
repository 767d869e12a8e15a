"""Forward passes: log-probabilities, entropies and values of completions."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from pgax.distributed.microbatches import join, split
from pgax.learner.rows import Microbatch, RowPlan
from pgax.learner.token_logp import token_logp
from pgax.models.decoder import Decoder
from pgax.models.experts import RouterLoad
from pgax.models.heads import ScalarDecoder
from pgax.models.prompts import PromptStates, features_after, read_prompt_states
from pgax.models.scoring import completion_features, row_features
from pgax.types import Array, Batch, DemonstrationRows, PyTree, Rollout


class PolicyOutputs(NamedTuple):
  """Outputs of a forward pass over the completions of a microbatch.

  Attributes:
    logp: `[A, M, T]` log-probabilities, in nats.
    entropy: `[A, M, T]` entropies, in nats.
    load: use of the experts; None for a model without experts.
  """

  logp: Array
  entropy: Array
  load: RouterLoad | None


def completion_logp(
  model: Decoder,
  params: PyTree,
  completions: Rollout | Batch,
  temperature: float = 1.0,
  chunk: int = 128,
) -> tuple[Array, Array]:
  """Computes log-probability and entropy at every completion token in one forward pass.

  Logits of `chunk` positions of all completions are in memory at a time, and are computed
  again in the backward pass, so that no array has `[N, G, T, V]` elements. The numbers do
  not depend on the chunk.

  Args:
    model: decoder of the policy.
    params: its parameters.
    completions: prompts `[N, P]` and completions `[N, G, T]`.
    temperature: temperature of the policy.
    chunk: number of positions in a chunk, at least 1.

  Returns:
    Two arrays `[N, G, T]`, in nats.
  """
  tokens, mask = completions.tokens, completions.token_mask
  prompts = completions.prompt_tokens, completions.prompt_mask
  hidden = completion_features(model, params, *prompts, tokens, mask)
  return token_logp(model, params, hidden, tokens, temperature, chunk)


def read_batch_prompts(
  plan: RowPlan,
  model: Decoder | ScalarDecoder,
  params: PyTree,
  completions: Rollout | Batch,
  experts: Array | None = None,
) -> PromptStates:
  """Reads the prompts of a batch once, in parts if there are several microbatches.

  Args:
    plan: how the batch is divided.
    model: the decoder, with or without a scalar head.
    params: its parameters.
    completions: a rollout or a batch, of which the prompts are read.
    experts: `[N, P, layers, k]`, experts that compute the tokens; None lets the router
      choose.

  Returns:
    `PromptStates` in the lanes of the plan.
  """

  def read(prompts: tuple[Array, Array, Array | None]) -> PromptStates:
    return read_prompt_states(model, params, *prompts)

  prompts = completions.prompt_tokens, completions.prompt_mask, experts
  if plan.prompt_chunks == 1:
    return read(prompts).in_lanes(plan.lanes)
  # Only what completions need is in memory until the backward pass reads prompts again.
  parts = jax.lax.map(jax.checkpoint(read), split(prompts, plan.prompt_chunks))

  def join_layers(x: Array) -> Array:  # axes are parts, layers, prompts
    return jnp.moveaxis(x, 0, 2).reshape(x.shape[1], -1, *x.shape[3:])

  return PromptStates(
    hidden=join(parts.hidden),
    keys=join_layers(parts.keys),
    values=join_layers(parts.values),
    load=jax.tree.map(lambda x: jnp.sum(x, axis=0), parts.load),
  ).in_lanes(plan.lanes)


def policy_outputs(
  model: Decoder,
  params: PyTree,
  states: PromptStates,
  part: Microbatch,
  temperature: float = 1.0,
  chunk: int = 128,
  experts: Array | None = None,
) -> PolicyOutputs:
  """Computes `completion_logp` of a microbatch, with the experts in and their use out.

  Args:
    model: decoder of the policy.
    params: its parameters.
    states: states of the prompts.
    part: completions `[A, M, T]`.
    temperature: temperature of the policy.
    chunk: number of positions in a chunk, at least 1.
    experts: `[A, M, T, layers, k]`, experts that compute the tokens; None lets the router
      choose.

  Returns:
    `PolicyOutputs`, whose load is that of the completions.
  """
  hidden, load = _features(model, params, states, part, experts)
  tokens = part.completions.tokens
  logp, entropy = token_logp(model, params, hidden, tokens, temperature, chunk)
  return PolicyOutputs(logp, entropy, load)


def row_logp(
  model: Decoder, params: PyTree, rows: DemonstrationRows, chunk: int = 128
) -> Array:
  """Computes the log-probability of every token of rows that hold one text or several.

  Args:
    model: decoder of the policy.
    params: its parameters.
    rows: rows of texts, none of which attends to another.
    chunk: number of positions in a chunk; see `completion_logp`.

  Returns:
    `[R, L]` in nats; meaningless at padding and at the first token of a text.
  """
  return routed_row_logp(model, params, rows, chunk)[0]


def routed_row_logp(
  model: Decoder, params: PyTree, rows: DemonstrationRows, chunk: int = 128
) -> tuple[Array, RouterLoad | None]:
  """Computes `row_logp` and the use of the experts, None for a model without experts."""
  hidden, load = row_features(model, params, rows.tokens, rows.positions, rows.segments)
  logp, _ = token_logp(
    model, params, hidden[:, None], rows.tokens[:, None], temperature=1.0, chunk=chunk
  )
  return logp[:, 0], load


def critic_outputs(
  critic: ScalarDecoder,
  params: PyTree,
  states: PromptStates,
  part: Microbatch,
) -> Array:
  """Computes the critic's output before every token of a microbatch in one forward pass.

  Args:
    critic: module of the critic.
    params: its parameters.
    states: states of the prompts.
    part: completions `[A, M, T]`.

  Returns:
    `[A, M, T]` float32.
  """
  hidden, _ = _features(critic, params, states, part)
  return critic.apply(params, hidden, method=critic.outputs)


def critic_outputs_to_end(
  critic: ScalarDecoder,
  params: PyTree,
  states: PromptStates,
  part: Microbatch,
) -> tuple[Array, Array]:
  """Computes `critic_outputs`, and the output after the last token of each completion.

  Args:
    critic: module of the critic; see `critic_outputs` for this and all other arguments.
    params: its parameters.
    states: states of the prompts.
    part: completions `[A, M, T]`.

  Returns:
    `[A, M, T]` and `[A, M]`, float32.
  """
  after = [(0, 0), (0, 0), (0, 1)]  # a place after the last token, which nothing attends to
  completions = part.completions
  longer = completions.replace(
    tokens=jnp.pad(completions.tokens, after),
    token_mask=jnp.pad(completions.token_mask, after),
  )
  part = part._replace(completions=longer)
  outputs = critic_outputs(critic, params, states, part)
  index = jnp.arange(1, outputs.shape[-1])
  end = jnp.max(jnp.where(completions.token_mask, index, 0), axis=-1)
  last = jnp.take_along_axis(outputs, end[..., None], axis=-1)[..., 0]
  return outputs[..., :-1], last


def _features(
  model: Decoder | ScalarDecoder,
  params: PyTree,
  states: PromptStates,
  part: Microbatch,
  experts: Array | None = None,
) -> tuple[Array, RouterLoad | None]:
  completions = part.completions
  return features_after(
    model,
    params,
    states,
    part.prompt_mask,
    part.prompts,
    completions.tokens,
    completions.token_mask,
    experts,
  )
