"""Reading prompts into the cache, long ones in parts."""

import jax
import jax.numpy as jnp

from pgax.models.cache import Cache, empty_key_values, share_prefix, token_positions
from pgax.models.decoder import Decoder
from pgax.models.prompts import read_routed_prompts
from pgax.models.routing import read_tokens
from pgax.types import Array, PyTree

_CHUNK = 512  # tokens of each prompt that are read at a time


def prefill(
  model: Decoder, params: PyTree, tokens: Array, mask: Array
) -> tuple[Array, Cache, Array | None]:
  """Reads prompts for sampling.

  Activations of 512 tokens of every prompt are in memory at a time, besides the cache.

  Args:
    model: decoder of the policy.
    params: its parameters.
    tokens: `[N, P]` int32, right-padded.
    mask: `[N, P]` bool; at least one real token in each row.

  Returns:
    Hidden state `[N, 1, 1, E]` of each prompt's last token, a `Cache` whose prefix is the
    prompt, and the experts `[N, P, layers, k]` of its tokens; None for a model without.
  """
  if tokens.shape[1] <= _CHUNK:
    hidden, cache, routing = read_routed_prompts(model, params, tokens, mask)
    return hidden, cache, routing and routing.experts[:, 0]
  return _read_in_chunks(model, params, tokens, mask)


def _read_in_chunks(
  model: Decoder, params: PyTree, tokens: Array, mask: Array
) -> tuple[Array, Cache, Array | None]:
  c, (n, length) = model.config, tokens.shape
  count = -(-length // _CHUNK)
  padding = [(0, 0), (0, count * _CHUNK - length)]
  tokens, mask = jnp.pad(tokens, padding), jnp.pad(mask, padding)

  def cut(x: Array) -> Array:
    return x.reshape(n, count, _CHUNK).swapaxes(0, 1)[:, :, None]

  def read(carry: tuple[Cache, Array], part: tuple[Array, Array, Array]) -> tuple:
    (cache, last), (tokens, positions, mask) = carry, part
    hidden, cache, routing = read_tokens(model, params, tokens, positions, cache)
    # The last real token so far; a part of padding alone changes nothing.
    end = jnp.max(jnp.where(mask, jnp.arange(_CHUNK), -1), axis=-1)
    latest = jnp.take_along_axis(hidden, jnp.maximum(end, 0)[..., None, None], axis=2)
    last = jnp.where(end[..., None, None] >= 0, latest, last)
    return (cache, last), routing and routing.experts[:, 0]

  shape = (c.num_layers, n, 1, c.num_kv_heads, count * _CHUNK, c.head_dim)
  dtype = jnp.dtype(c.compute_dtype)
  start = (
    Cache(None, empty_key_values(shape, dtype), jnp.int32(0)),
    jnp.zeros((n, 1, 1, c.embed_dim), dtype),
  )
  parts = cut(tokens), cut(token_positions(mask)), cut(mask)
  (cache, hidden), experts = jax.lax.scan(read, start, parts)
  if experts is not None:
    experts = jnp.moveaxis(experts, 0, 1)
    experts = experts.reshape(n, -1, *experts.shape[3:])[:, :length]
  written = cache.suffix
  suffix = written.replace(
    keys=written.keys[..., :length, :],
    values=written.values[..., :length, :],
    positions=written.positions[..., :length],
  )
  return hidden, share_prefix(cache.replace(suffix=suffix)), experts
