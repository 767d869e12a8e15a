"""Grouped-query attention over a shared prefix, a cached suffix and the tokens read."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from pgax.models.cache import NEVER
from pgax.models.config import DecoderConfig
from pgax.models.layers import RMSNorm, zeros
from pgax.models.rope import rotate
from pgax.types import Array

_HIDDEN = -1e30  # finite, so that a query that sees nothing gives a mean and not nan

# One layer's keys and values `[N, G, S, K, D]` (G is 1 where the group shares them), and
# their positions `[N, G, S]`.
Memory = tuple[Array, Array, Array]


def _scores(queries: Array, keys: Array) -> Array:
  """Scores `[N, G, K, R, L, S]` of queries `[N, G, L, K, R, D]`, float32."""
  shared = keys.shape[1] == 1
  formula = "nglkrd,nskd->ngkrls" if shared else "nglkrd,ngskd->ngkrls"
  keys = keys[:, 0] if shared else keys
  return jnp.einsum(formula, queries, keys, preferred_element_type=jnp.float32)


def _mix(probs: Array, values: Array) -> Array:
  """Values mixed by float32 probabilities `[N, G, K, R, L, S]`, `[N, G, L, K, R, D]`."""
  shared = values.shape[1] == 1
  formula = "ngkrls,nskd->nglkrd" if shared else "ngkrls,ngskd->nglkrd"
  probs, values = probs.astype(values.dtype), values[:, 0] if shared else values
  return jnp.einsum(formula, probs, values, preferred_element_type=jnp.float32)


class Attention(nn.Module):
  """Grouped-query attention (arXiv 2305.13245).

  One softmax spans prefix, suffix and the tokens read now, so sharing a prompt among its
  completions is exact, and the prompt's keys and values stand in memory once.
  """

  config: DecoderConfig

  def setup(self):
    c = self.config
    init = nn.initializers.variance_scaling(
      1.0, "fan_in", "normal", in_axis=0, out_axis=(1, 2)
    )
    out = nn.initializers.variance_scaling(
      1.0, "fan_in", "normal", in_axis=(0, 1), out_axis=2
    )
    q_shape = (c.embed_dim, c.num_heads, c.head_dim)
    kv_shape = (c.embed_dim, c.num_kv_heads, c.head_dim)
    part = nn.with_logical_partitioning
    self.query = self.param("query", part(init, ("embed", "heads", "head")), q_shape)
    self.key = self.param("key", part(init, ("embed", "kv_heads", "head")), kv_shape)
    self.value = self.param("value", part(init, ("embed", "kv_heads", "head")), kv_shape)
    out_shape = (c.num_heads, c.head_dim, c.embed_dim)
    self.out = self.param("out", part(out, ("heads", "head", "embed")), out_shape)
    if c.qkv_bias:
      heads, kv_heads = part(zeros, ("heads", "head")), part(zeros, ("kv_heads", "head"))
      self.query_bias = self.param("query_bias", heads, q_shape[1:])
      self.key_bias = self.param("key_bias", kv_heads, kv_shape[1:])
      self.value_bias = self.param("value_bias", kv_heads, kv_shape[1:])
    if c.out_bias:
      self.out_bias = self.param("out_bias", part(zeros, ("embed",)), (c.embed_dim,))
    if c.qk_norm:
      self.query_norm, self.key_norm = RMSNorm(c), RMSNorm(c)

  def _project(self, x: Array) -> tuple[Array, Array, Array]:
    """Queries `[N, G, L, H, D]`, keys and values `[N, G, L, K, D]`."""
    weights = (self.query, self.key, self.value)
    heads = [jnp.einsum("ngle,ehd->nglhd", x, w.astype(x.dtype)) for w in weights]
    if self.config.qkv_bias:
      biases = (self.query_bias, self.key_bias, self.value_bias)
      heads = [h + b.astype(x.dtype) for h, b in zip(heads, biases, strict=True)]
    if self.config.qk_norm:
      heads[:2] = self.query_norm(heads[0]), self.key_norm(heads[1])
    return tuple(heads)

  def _masked(self, scores: Array, visible: Array) -> Array:
    c = self.config
    scores = scores * (c.query_scalar or c.head_dim) ** -0.5
    if c.attention_softcap:
      scores = jnp.tanh(scores / c.attention_softcap) * c.attention_softcap
    return jnp.where(visible[:, :, None, None], scores, _HIDDEN)

  def _visible(self, positions: Array, key_positions: Array, slides: Array) -> Array:
    """Whether a key is seen, `[N, G, L, S]` (or `[N, 1, L, S]`), by positions alone."""
    query_positions, key_positions = positions[..., None], key_positions[:, :, None]
    visible = key_positions <= query_positions
    window = self.config.sliding_window
    if not window:
      return visible
    window = jnp.where(slides, window, NEVER + 1)  # no real token is as far away
    return visible & (query_positions - key_positions < window)

  def __call__(
    self, x: Array, positions: Array, turn: Array, slides: Array, memory: tuple[Memory, ...]
  ) -> tuple[Array, Array, Array]:
    """Reads `x`, and attends to it and to what the memory holds.

    Args:
      x: `[N, G, L, E]`.
      positions: `[N, G, L]` int32.
      turn: `[2, N, G, L, D / 2]`, cosines and sines of the positions.
      slides: bool scalar, whether the layer sees only its window.
      memory: what came before, in any number of parts.

    Returns:
      The output `[N, G, L, E]`, and the keys and values `[N, G, L, K, D]` of these tokens.
    """
    c = self.config
    queries, keys, values = self._project(x)
    queries, keys = rotate(queries, turn), rotate(keys, turn)
    repeats = c.num_heads // c.num_kv_heads
    queries = queries.reshape(*x.shape[:3], c.num_kv_heads, repeats, c.head_dim)
    parts = (*memory, (keys, values, positions))
    scores = [
      self._masked(_scores(queries, part), self._visible(positions, at, slides))
      for part, _, at in parts
    ]
    probs = jax.nn.softmax(jnp.concatenate(scores, axis=-1), axis=-1)
    ends = [sum(s.shape[-1] for s in scores[: i + 1]) for i in range(len(parts) - 1)]
    split = jnp.split(probs, ends, axis=-1)
    mixed = sum(_mix(p, part[1]) for p, part in zip(split, parts, strict=True))
    heads = mixed.reshape(*x.shape[:3], c.num_heads, c.head_dim).astype(x.dtype)
    out = jnp.einsum("nglhd,hde->ngle", heads, self.out.astype(x.dtype))
    if c.out_bias:
      out += self.out_bias.astype(x.dtype)
    return out, keys, values
