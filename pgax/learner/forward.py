"""Forward passes: prompts of a batch, and log-probabilities of completions and rows."""

import jax
import jax.numpy as jnp

from pgax.distributed.microbatches import join, split
from pgax.learner.chunked_head import chunked_head
from pgax.learner.microbatches import RowPlan
from pgax.models.decoder import Decoder
from pgax.models.experts import RouterLoad
from pgax.models.heads import ScalarDecoder
from pgax.models.prompts import PromptStates, prompt_states, read_prompts
from pgax.models.scoring import completion_features, row_features
from pgax.ops import logprobs
from pgax.types import Array, Batch, DemonstrationRows, PyTree, Rollout


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
  c = completions
  hidden, _ = completion_features(
    model, params, c.prompt_tokens, c.prompt_mask, c.tokens, c.token_mask
  )
  return chunked_head(model, params, hidden, c.tokens, temperature=temperature, chunk=chunk)


def row_logp(
  model: Decoder, params: PyTree, rows: DemonstrationRows, chunk: int = 128
) -> tuple[Array, RouterLoad | None]:
  """Computes the log-probability of every token of rows that hold one text or several.

  Args:
    model: decoder of the policy.
    params: its parameters.
    rows: rows of texts, none of which attends to another.
    chunk: number of positions in a chunk; see `completion_logp`.

  Returns:
    `[R, L]` in nats, undefined at padding and at the first token of a text. Also the use of
    the experts; None for a model without experts.
  """
  hidden, load = row_features(model, params, rows.tokens, rows.positions, rows.segments)
  (logp,) = chunked_head(
    model,
    params,
    hidden[:, None],
    rows.tokens[:, None],
    (logprobs.token_logp,),
    chunk=chunk,
  )
  return logp[:, 0], load


def read_batch_prompts(
  plan: RowPlan,
  model: Decoder | ScalarDecoder,
  params: PyTree,
  completions: Rollout | Batch,
  replay: bool = False,
) -> tuple[PromptStates, RouterLoad | None]:
  """Reads the prompts of a batch once, in parts if there are several microbatches.

  Args:
    plan: how the batch is divided.
    model: the decoder, with or without a scalar head.
    params: its parameters.
    completions: a rollout or a batch, of which the prompts are read.
    replay: whether the rollout's experts compute the tokens, instead of the router's.

  Returns:
    `PromptStates` in the lanes of the plan, and the use of the experts by the prompts; None
    for a model without experts.
  """

  def read(
    prompts: tuple[Array, Array, Array | None],
  ) -> tuple[PromptStates, RouterLoad | None]:
    output = read_prompts(model, params, *prompts)
    routing = output.routing
    return prompt_states(output), None if routing is None else routing.load

  experts = completions.experts.prompt if replay else None
  prompts = completions.prompt_tokens, completions.prompt_mask, experts
  if plan.prompt_chunks == 1:
    states, load = read(prompts)
    return states.in_lanes(plan.lanes), load
  # Only what completions need is in memory until the backward pass reads prompts again.
  parts, load = jax.lax.map(jax.checkpoint(read), split(prompts, plan.prompt_chunks))

  def join_layers(x: Array) -> Array:  # axes are parts, layers, prompts
    return jnp.moveaxis(x, 0, 2).reshape(x.shape[1], -1, *x.shape[3:])

  states = PromptStates(
    hidden=join(parts.hidden),
    keys=join_layers(parts.keys),
    values=join_layers(parts.values),
  )
  load = jax.tree.map(lambda x: jnp.sum(x, axis=0), load)
  return states.in_lanes(plan.lanes), load
