"""Forward passes over a rollout, and splitting one into parts."""

import jax
import jax.numpy as jnp

from pgax.models.decoder import Decoder
from pgax.models.heads import Critic
from pgax.models.scoring import completion_features, completion_outputs, row_features
from pgax.ops import logprobs
from pgax.types import Array, Batch, DemonstrationRows, PyTree, Rollout


def completion_logp(
  model: Decoder,
  params: PyTree,
  prompt_tokens: Array,
  prompt_mask: Array,
  tokens: Array,
  mask: Array,
  temperature: float = 1.0,
  chunk: int = 128,
) -> tuple[Array, Array]:
  """Log-probability and entropy at every completion token, by one forward pass.

  Logits are made of `chunk` positions of all completions at a time, and made again in the
  backward pass, so that `[N, G, T, V]` of them never stand in memory. The numbers are those
  of a single chunk.

  Args:
    model: the decoder.
    params: its parameters.
    prompt_tokens: `[N, P]` int32.
    prompt_mask: `[N, P]` bool.
    tokens: `[N, G, T]` int32.
    mask: `[N, G, T]` bool.
    temperature: of the policy.
    chunk: number of positions, at least 1.

  Returns:
    Two arrays `[N, G, T]`, nats.
  """
  hidden = completion_features(model, params, prompt_tokens, prompt_mask, tokens, mask)
  return _scores(model, params, hidden, tokens, temperature, chunk)


def _scores(
  model: Decoder,
  params: PyTree,
  hidden: Array,
  tokens: Array,
  temperature: float,
  chunk: int,
) -> tuple[Array, Array]:
  """Log-probability and entropy of tokens `[N, G, T]` by the hidden states before them."""

  def score(part: tuple[Array, Array]) -> tuple[Array, Array]:
    some_hidden, some_tokens = part
    logits = model.apply(params, some_hidden, method=model.unembed)
    log_probs = logprobs.log_softmax(logits, temperature)
    return logprobs.token_logp(log_probs, some_tokens), logprobs.entropy(log_probs)

  length = tokens.shape[-1]
  if length <= chunk:
    return score((hidden, tokens))
  count = -(-length // chunk)

  def cut(x: Array) -> Array:
    room = [(0, 0)] * x.ndim
    room[2] = (0, count * chunk - length)
    x = jnp.pad(x, room).reshape(*x.shape[:2], count, chunk, *x.shape[3:])
    return jnp.moveaxis(x, 2, 0)

  scored = jax.lax.map(jax.checkpoint(score), (cut(hidden), cut(tokens)))
  whole = (*tokens.shape[:2], count * chunk)
  return tuple(jnp.moveaxis(x, 0, 2).reshape(whole)[..., :length] for x in scored)


def row_logp(
  model: Decoder, params: PyTree, rows: DemonstrationRows, chunk: int = 128
) -> Array:
  """Log-probability of every token of packed rows, each text read by itself.

  Args:
    model: the decoder.
    params: its parameters.
    rows: texts, one or several in a row.
    chunk: positions whose logits stand in memory at a time; see `completion_logp`.

  Returns:
    `[R, L]`, nats; of no use where a text begins and at padding.
  """
  hidden = row_features(model, params, rows.tokens, rows.positions, rows.segments)
  logp, _ = _scores(model, params, hidden[:, None], rows.tokens[:, None], 1.0, chunk)
  return logp[:, 0]


def token_logp(
  model: Decoder,
  params: PyTree,
  batch: Rollout | Batch,
  temperature: float,
  chunk: int = 128,
) -> tuple[Array, Array]:
  """`completion_logp` of anything with prompts `[N, P]` and completions `[N, G, T]`."""
  prompts = batch.prompt_tokens, batch.prompt_mask
  return completion_logp(
    model, params, *prompts, batch.tokens, batch.mask, temperature, chunk
  )


def token_outputs(critic: Critic, params: PyTree, batch: Rollout | Batch) -> Array:
  """Outputs of the critic's head before every completion token, by one forward pass.

  Args:
    critic: the critic.
    params: its parameters.
    batch: as for `token_logp`.

  Returns:
    `[N, G, T]` float32.
  """
  return completion_outputs(
    critic, params, batch.prompt_tokens, batch.prompt_mask, batch.tokens, batch.mask
  )


def split(tree: PyTree, parts: int) -> PyTree:
  """Axis 0 of every array in `parts` parts: `[N, ...]` to `[parts, N / parts, ...]`.

  Part `i` is every `parts`-th row from `i` on. With rows sharded in blocks, each part then
  has rows on every device, and nothing moves.
  """

  def strided(x: Array) -> Array:
    return x.reshape(x.shape[0] // parts, parts, *x.shape[1:]).swapaxes(0, 1)

  return jax.tree.map(strided, tree)


def join(tree: PyTree) -> PyTree:
  """The inverse of `split`."""
  return jax.tree.map(lambda x: x.swapaxes(0, 1).reshape(-1, *x.shape[2:]), tree)
