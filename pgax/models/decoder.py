"""The decoder: one function for training and for decoding."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from pgax.models.attention import Attention
from pgax.models.cache import Cache, Segment, empty_segment, write
from pgax.models.config import DecoderConfig
from pgax.types import Array

_fan_in = nn.initializers.variance_scaling(1.0, "fan_in", "normal")


class RMSNorm(nn.Module):
  """Root-mean-square normalisation (arXiv 1910.07467), in float32."""

  eps: float

  @nn.compact
  def __call__(self, x: Array) -> Array:
    init = nn.with_logical_partitioning(nn.initializers.ones, ("norm",))
    scale = self.param("scale", init, (x.shape[-1],))
    wide = x.astype(jnp.float32)
    mean_square = jnp.mean(wide**2, axis=-1, keepdims=True)
    return (wide * jax.lax.rsqrt(mean_square + self.eps) * scale).astype(x.dtype)


class SwiGLU(nn.Module):
  """Gated feed-forward layer, `(silu(x W_gate) * x W_up) W_down` (arXiv 2002.05202)."""

  config: DecoderConfig

  @nn.compact
  def __call__(self, x: Array) -> Array:
    c = self.config
    wide = nn.with_logical_partitioning(_fan_in, ("embed", "mlp"))
    narrow = nn.with_logical_partitioning(_fan_in, ("mlp", "embed"))
    gate = self.param("gate", wide, (c.embed_dim, c.mlp_dim))
    up = self.param("up", wide, (c.embed_dim, c.mlp_dim))
    down = self.param("down", narrow, (c.mlp_dim, c.embed_dim))
    return (nn.silu(x @ gate) * (x @ up)) @ down


class Block(nn.Module):
  """Pre-norm attention and feed-forward layer, each added to the residual stream."""

  config: DecoderConfig

  def setup(self):
    self.attention_norm = RMSNorm(self.config.norm_eps)
    self.attention = Attention(self.config)
    self.mlp_norm = RMSNorm(self.config.norm_eps)
    self.mlp = SwiGLU(self.config)

  def __call__(self, x: Array, *memory) -> tuple[Array, Array, Array]:
    """Takes what `Attention` takes, and returns what it returns."""
    mixed, keys, values = self.attention(self.attention_norm(x), *memory)
    x = x + mixed
    return x + self.mlp(self.mlp_norm(x)), keys, values


class Decoder(nn.Module):
  """A decoder-only transformer with an explicit cache.

  `apply(params, tokens, positions, cache) -> (logits, cache)` reads any number of tokens
  of every completion at once: a prompt, a whole completion in training, or one token of
  each in decoding.
  """

  config: DecoderConfig

  def setup(self):
    c = self.config
    # Times sqrt(width) this starts the residual stream at unit scale, and tied logits too.
    normal = nn.initializers.normal(c.embed_dim**-0.5)
    init = nn.with_logical_partitioning(normal, ("vocab", "embed"))
    self.embedding = self.param("embedding", init, (c.vocab_size, c.embed_dim))
    self.blocks = [Block(c) for _ in range(c.num_layers)]
    self.final_norm = RMSNorm(c.norm_eps)
    if not c.tie_embeddings:
      init = nn.with_logical_partitioning(_fan_in, ("embed", "vocab"))
      self.unembedding = self.param("unembedding", init, (c.embed_dim, c.vocab_size))

  def __call__(
    self, tokens: Array, positions: Array, cache: Cache | None = None
  ) -> tuple[Array, Cache]:
    """Logits of the token after each token, and the cache with these tokens in it.

    Args:
      tokens: `[N, G, L]` int32 ids.
      positions: `[N, G, L]` int32, `cache.NEVER` on padding (see `token_positions`).
      cache: what came before; nothing by default.

    Returns:
      Logits `[N, G, L, V]` and a `Cache` whose suffix includes these tokens.
    """
    hidden, cache = self.features(tokens, positions, cache)
    return self.unembed(hidden), cache

  def features(
    self, tokens: Array, positions: Array, cache: Cache | None = None
  ) -> tuple[Array, Cache]:
    """The last hidden states `[N, G, L, E]`, and the cache; as `__call__` otherwise."""
    c = self.config
    x = self.embedding[tokens] * c.embed_dim**0.5
    if cache is None:
      shape = (*tokens.shape, c.num_kv_heads, c.head_dim)
      suffix = empty_segment(shape, c.num_layers, x.dtype)
      cache = Cache(None, suffix, jnp.int32(0))
    seen = write(cache.suffix.positions, positions, cache.index)
    suffix = cache.suffix.replace(positions=seen)
    keys, values = [], []
    for layer, block in enumerate(self.blocks):
      x, new_keys, new_values = block(
        x, positions, layer, cache.prefix, suffix, cache.index
      )
      keys.append(new_keys)
      values.append(new_values)
    suffix = Segment(tuple(keys), tuple(values), seen)
    cache = Cache(cache.prefix, suffix, cache.index + tokens.shape[2])
    return self.final_norm(x), cache

  def unembed(self, hidden: Array) -> Array:
    """Logits `[..., V]` of hidden states `[..., E]`."""
    if self.config.tie_embeddings:
      return hidden @ self.embedding.T
    return hidden @ self.unembedding
