"""Forward passes: log-probabilities, entropies and values of completions."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from pgax.models.decoder import Decoder
from pgax.models.experts import RouterLoad
from pgax.models.heads import ScalarDecoder
from pgax.models.scoring import completion_outputs, routed_features, row_features
from pgax.ops import logprobs
from pgax.types import Array, Batch, DemonstrationRows, ExpertChoices, PyTree, Rollout


class PolicyOutputs(NamedTuple):
  """Outputs of a forward pass over completions.

  Attributes:
    logp: `[N, G, T]` log-probabilities, in nats.
    entropy: `[N, G, T]` entropies, in nats.
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
  return policy_outputs(model, params, completions, temperature, chunk)[:2]


def policy_outputs(
  model: Decoder,
  params: PyTree,
  completions: Rollout | Batch,
  temperature: float = 1.0,
  chunk: int = 128,
  experts: ExpertChoices | None = None,
) -> PolicyOutputs:
  """Computes `completion_logp`, with the experts in and their use out.

  Args:
    model: decoder of the policy.
    params: its parameters.
    completions: prompts `[N, P]` and completions `[N, G, T]`.
    temperature: temperature of the policy.
    chunk: number of positions in a chunk, at least 1.
    experts: experts that compute the tokens; None lets the router choose.

  Returns:
    `PolicyOutputs`.
  """
  hidden, load = routed_features(
    model,
    params,
    completions.prompt_tokens,
    completions.prompt_mask,
    completions.tokens,
    completions.token_mask,
    experts,
  )
  tokens = completions.tokens
  logp, entropy = _chunked_logp(model, params, hidden, tokens, temperature, chunk)
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
  logp, _ = _chunked_logp(
    model, params, hidden[:, None], rows.tokens[:, None], temperature=1.0, chunk=chunk
  )
  return logp[:, 0], load


def critic_outputs(
  critic: ScalarDecoder, params: PyTree, completions: Rollout | Batch
) -> Array:
  """Computes the critic's output before every completion token in one forward pass.

  Args:
    critic: module of the critic.
    params: its parameters.
    completions: prompts `[N, P]` and completions `[N, G, T]`.

  Returns:
    `[N, G, T]` float32.
  """
  return completion_outputs(
    critic,
    params,
    completions.prompt_tokens,
    completions.prompt_mask,
    completions.tokens,
    completions.token_mask,
  )


def critic_outputs_to_end(
  critic: ScalarDecoder, params: PyTree, completions: Rollout | Batch
) -> tuple[Array, Array]:
  """Computes `critic_outputs`, and the output after the last token of each completion.

  Args:
    critic: module of the critic.
    params: its parameters.
    completions: prompts `[N, P]` and completions `[N, G, T]`.

  Returns:
    `[N, G, T]` and `[N, G]`, float32.
  """
  after = [(0, 0), (0, 0), (0, 1)]  # a place after the last token, which nothing attends to
  longer = completions.replace(
    tokens=jnp.pad(completions.tokens, after),
    token_mask=jnp.pad(completions.token_mask, after),
  )
  outputs = critic_outputs(critic, params, longer)
  index = jnp.arange(1, outputs.shape[-1])
  end = jnp.max(jnp.where(completions.token_mask, index, 0), axis=-1)
  last = jnp.take_along_axis(outputs, end[..., None], axis=-1)[..., 0]
  return outputs[..., :-1], last


def _chunked_logp(
  model: Decoder,
  params: PyTree,
  hidden: Array,
  tokens: Array,
  temperature: float,
  chunk: int,
) -> tuple[Array, Array]:
  """Log-probability and entropy of tokens `[N, G, T]`, by the hidden states before them."""

  def logp_of(part: tuple[Array, Array]) -> tuple[Array, Array]:
    part_hidden, part_tokens = part
    logits = model.apply(params, part_hidden, method=model.unembed)
    log_probs = logprobs.log_softmax(logits, temperature)
    return logprobs.token_logp(log_probs, part_tokens), logprobs.entropy(log_probs)

  length = tokens.shape[-1]
  if length <= chunk:
    return logp_of((hidden, tokens))
  count = -(-length // chunk)

  def cut(x: Array) -> Array:
    padding = [(0, 0)] * x.ndim
    padding[2] = (0, count * chunk - length)
    x = jnp.pad(x, padding).reshape(*x.shape[:2], count, chunk, *x.shape[3:])
    return jnp.moveaxis(x, 2, 0)

  chunks = jax.lax.map(jax.checkpoint(logp_of), (cut(hidden), cut(tokens)))
  padded = (*tokens.shape[:2], count * chunk)
  return tuple(jnp.moveaxis(x, 0, 2).reshape(padded)[..., :length] for x in chunks)
