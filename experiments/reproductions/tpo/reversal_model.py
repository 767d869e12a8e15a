"""The transformer of TPO's token reversal, with a key/value cache.

Two layers of width 64 with two heads, learned positions, layer norms before attention and
feed-forward. Parameters have the names, and so the initial values, of the authors' model.
"""

import functools

import jax
import jax.numpy as jnp
from flax import linen as nn

from pgax.types import Array

WIDTH, HEADS, LAYERS, EXPANSION = 64, 2, 2, 4
_NO_ATTENTION = jnp.finfo(jnp.float32).min
# Keys and values of a layer, each `[B, length, heads, width of a head]`.
LayerCache = tuple[Array, Array]
Cache = tuple[LayerCache, ...]


def empty_cache(rows: int, length: int) -> Cache:
  """Returns a cache of `length` positions without a token."""
  zeros = jnp.zeros((rows, length, HEADS, WIDTH // HEADS))
  return ((zeros, zeros),) * LAYERS


class SelfAttention(nn.Module):
  """Causal self-attention to cached positions and to those of the call."""

  @nn.compact
  def __call__(
    self, x: Array, cache: LayerCache | None, start: Array | int, outputs: int
  ) -> tuple[Array, LayerCache]:
    """Attends from the last positions of a call.

    Args:
      x: `[B, T, D]` activations.
      cache: keys and values of earlier positions; None without any.
      start: position of the first activation.
      outputs: number of last positions to attend from.

    Returns:
      `[B, outputs, D]`, and the keys and values with those of the call.
    """
    project = functools.partial(nn.DenseGeneral, features=(HEADS, WIDTH // HEADS))
    keys, values = project(name="key")(x), project(name="value")(x)
    queries = project(name="query")(x[:, -outputs:]) / jnp.sqrt(WIDTH // HEADS)
    if cache is not None:
      update = functools.partial(jax.lax.dynamic_update_slice_in_dim, axis=1)
      keys, values = update(cache[0], keys, start), update(cache[1], values, start)
    scores = jnp.einsum("bqhd,bkhd->bhqk", queries, keys)
    positions = start + x.shape[1] - outputs + jnp.arange(outputs)
    visible = jnp.arange(keys.shape[1]) <= positions[:, None]
    weights = jax.nn.softmax(jnp.where(visible, scores, _NO_ATTENTION), axis=-1)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", weights, values)
    return nn.DenseGeneral(WIDTH, axis=(-2, -1), name="out")(mixed), (keys, values)


class Transformer(nn.Module):
  """A causal transformer that returns log-probabilities of next tokens.

  Attributes:
    vocab: number of tokens in the vocabulary.
    length: largest number of positions.
  """

  vocab: int
  length: int

  @nn.compact
  def __call__(
    self,
    tokens: Array,
    outputs: int,
    cache: Cache | None = None,
    start: Array | int = 0,
  ) -> tuple[Array, Cache]:
    """Computes log-probabilities after the last tokens of a call.

    Args:
      tokens: `[B, T]` int tokens.
      outputs: number of last positions whose log-probabilities are returned; what only
        others need is not computed.
      cache: keys and values of earlier positions; None without any.
      start: position of the first token.

    Returns:
      `[B, outputs, vocab]` log-probabilities, nats, and the cache with these positions.
    """
    shape = (self.length, WIDTH)
    table = self.param("pos_emb", nn.initializers.normal(stddev=0.02), shape)
    positions = jax.lax.dynamic_slice_in_dim(table, start, tokens.shape[1])
    x, caches = nn.Embed(self.vocab, WIDTH)(tokens) + positions, []
    for layer in range(LAYERS):
      count = outputs if layer == LAYERS - 1 else tokens.shape[1]
      earlier = None if cache is None else cache[layer]
      y, now = SelfAttention()(nn.LayerNorm()(x), earlier, start, count)
      caches.append(now)
      x = x[:, -count:] + y
      y = nn.gelu(nn.Dense(EXPANSION * WIDTH)(nn.LayerNorm()(x)))
      x = x + nn.Dense(WIDTH)(y)
    logits = nn.Dense(self.vocab)(nn.LayerNorm()(x))
    return jax.nn.log_softmax(logits), tuple(caches)
