"""Reading prompts into the cache, long ones in parts."""

import jax
import jax.numpy as jnp

from pgax.models.cache import Cache, empty_key_values, share_prefix, token_positions
from pgax.models.decoder import Decoder, Output
from pgax.models.experts import Routing
from pgax.models.prompts import read_prompts
from pgax.types import Array, PyTree

_CHUNK = 512  # tokens of each prompt that are read at a time


def prefill(model: Decoder, params: PyTree, tokens: Array, mask: Array) -> Output:
  """Reads prompts for sampling.

  Activations of 512 tokens of every prompt are in memory at a time, besides the cache.

  Args:
    model: decoder of the policy.
    params: its parameters.
    tokens: `[N, P]` int32, right-padded.
    mask: `[N, P]` bool; at least one real token in each row.

  Returns:
    The `Output` of `read_prompts`.
  """
  if tokens.shape[1] <= _CHUNK:
    return read_prompts(model, params, tokens, mask)
  c, (n, length) = model.config, tokens.shape
  count = -(-length // _CHUNK)
  padding = [(0, 0), (0, count * _CHUNK - length)]
  tokens, mask = jnp.pad(tokens, padding), jnp.pad(mask, padding)

  def cut(x: Array) -> Array:
    return x.reshape(n, count, _CHUNK).swapaxes(0, 1)[:, :, None]

  def read(carry: tuple[Cache, Array], part: tuple[Array, Array, Array]) -> tuple:
    (cache, last), (tokens, positions, mask) = carry, part
    output = model.apply(params, tokens, positions, cache, method=model.features)
    # The last real token so far; a part of padding alone changes nothing.
    end = jnp.max(jnp.where(mask, jnp.arange(_CHUNK), -1), axis=-1)
    latest = jnp.take_along_axis(
      output.hidden, jnp.maximum(end, 0)[..., None, None], axis=2
    )
    last = jnp.where(end[..., None, None] >= 0, latest, last)
    return (output.cache, last), output.routing

  shape = (c.num_layers, n, 1, c.num_kv_heads, count * _CHUNK, c.head_dim)
  dtype = jnp.dtype(c.compute_dtype)
  start = (
    Cache(None, empty_key_values(shape, dtype), jnp.int32(0)),
    jnp.zeros((n, 1, 1, c.embed_dim), dtype),
  )
  parts = cut(tokens), cut(token_positions(mask)), cut(mask)
  (cache, hidden), routing = jax.lax.scan(read, start, parts)
  if routing is not None:
    experts = jnp.moveaxis(routing.experts, 0, 2)  # to [N, 1, parts, tokens, ...]
    experts = experts.reshape(n, 1, -1, *experts.shape[4:])[:, :, :length]
    load = jax.tree.map(lambda x: jnp.sum(x, axis=0), routing.load)
    routing = Routing(experts, load)
  written = cache.suffix
  suffix = written.replace(
    keys=written.keys[..., :length, :],
    values=written.values[..., :length, :],
    positions=written.positions[..., :length],
  )
  return Output(hidden, share_prefix(cache.replace(suffix=suffix)), routing)
