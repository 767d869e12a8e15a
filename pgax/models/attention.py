"""Grouped-query attention over a shared prefix, a cached suffix and the new tokens."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from pgax.models.cache import NEVER
from pgax.models.config import DecoderConfig
from pgax.models.layers import RMSNorm, zeros
from pgax.models.rope import rotate
from pgax.types import Array

_MASKED = -1e30  # finite: a query that attends to nothing gives a mean and not nan

# One layer's keys and values `[N, G, K, S, D]` (G is 1 if the group shares them), and their
# positions `[N, G, S]`.
Memory = tuple[Array, Array, Array]


def _scores(queries: Array, keys: Array) -> Array:
  """Computes scores `[N, G, K, R, L, S]` of queries `[N, G, L, K, R, D]`, float32."""
  shared = keys.shape[1] == 1
  formula = "nglkrd,nksd->ngkrls" if shared else "nglkrd,ngksd->ngkrls"
  keys = keys[:, 0] if shared else keys
  return jnp.einsum(formula, queries, keys, preferred_element_type=jnp.float32)


def _mix(probs: Array, values: Array) -> Array:
  """Averages values by probabilities `[N, G, K, R, L, S]`, to `[N, G, L, K, R, D]`."""
  shared = values.shape[1] == 1
  repeats, queries = probs.shape[3:5]
  if queries == 1 < repeats and not shared:
    # Within a tenth of the product on CPUs. With one query for each key head, XLA computes
    # this sum 40 times as slowly as the product.
    mixed = jnp.sum(probs[..., 0, :, None] * values[:, :, :, None], axis=-2)
    return mixed[:, :, None]
  # A plain matrix product, transposed afterwards: XLA's CPU backend has no other one in
  # bfloat16.
  formula = "ngkrls,nksd->nkgrld" if shared else "ngkrls,ngksd->ngkrld"
  probs, values = probs.astype(values.dtype), values[:, 0] if shared else values
  mixed = jnp.einsum(formula, probs, values, preferred_element_type=jnp.float32)
  mixed = mixed.swapaxes(1, 2) if shared else mixed
  return jnp.moveaxis(mixed, 4, 2)


def _visible(
  c: DecoderConfig, positions: Array, key_positions: Array, sliding: Array
) -> Array:
  """Returns which keys queries attend to, `[N, G, L, S]` or `[N, 1, L, S]`."""
  positions, key_positions = positions[..., None], key_positions[:, :, None]
  visible = key_positions <= positions
  if not c.sliding_window:
    return visible
  window = jnp.where(sliding, c.sliding_window, NEVER + 1)  # no real token is as far away
  return visible & (positions - key_positions < window)


def attend(
  c: DecoderConfig,
  queries: Array,
  positions: Array,
  sliding: Array,
  memory: tuple[Memory, ...],
  segments: Array | None = None,
) -> Array:
  """Attends to all parts of the memory with one exact softmax.

  Args:
    c: configuration of the decoder.
    queries: `[N, G, L, K, R, D]`, `R` queries for each key head.
    positions: `[N, G, L]` int32, positions of the queries.
    sliding: bool scalar, whether to attend to the sliding window only.
    memory: keys, values and positions, in any number of parts.
    segments: `[N, G, L]` int32, segment of each query and of each key of the only part;
      None if every row is one text.

  Returns:
    Averaged values `[N, G, L, K, R, D]`, float32.
  """
  scores = []
  for keys, _, key_positions in memory:
    score = _scores(queries, keys) * (c.query_scalar or c.head_dim) ** -0.5
    if c.attention_softcap:
      score = jnp.tanh(score / c.attention_softcap) * c.attention_softcap
    visible = _visible(c, positions, key_positions, sliding)
    if segments is not None:
      visible &= segments[..., None] == segments[:, :, None]
    scores.append(jnp.where(visible[:, :, None, None], score, _MASKED))
  probs = jax.nn.softmax(jnp.concatenate(scores, axis=-1), axis=-1)
  ends = np.cumsum([score.shape[-1] for score in scores])[:-1]
  split = jnp.split(probs, ends, axis=-1)
  return sum(_mix(p, values) for p, (_, values, _) in zip(split, memory, strict=True))


class Attention(nn.Module):
  """Grouped-query attention (arXiv 2305.13245).

  One softmax spans prefix, suffix and new tokens. So sharing a prompt among its completions
  is exact, and the prompt's keys and values are in memory once.
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
    if c.qk_norm != "none":
      self.query_norm, self.key_norm = RMSNorm(c), RMSNorm(c)

  def _project(self, x: Array) -> tuple[Array, Array, Array]:
    """Projects to queries `[N, G, L, H, D]`, keys and values `[N, G, L, K, D]`."""
    weights = (self.query, self.key, self.value)
    heads = [jnp.einsum("ngle,ehd->nglhd", x, w.astype(x.dtype)) for w in weights]
    if self.config.qkv_bias:
      biases = (self.query_bias, self.key_bias, self.value_bias)
      heads = [h + b.astype(x.dtype) for h, b in zip(heads, biases, strict=True)]
    if self.config.qk_norm != "none":
      norms = (self.query_norm, self.key_norm)
      heads[:2] = [self._normalize(n, h) for n, h in zip(norms, heads[:2], strict=True)]
    return tuple(heads)

  def _normalize(self, norm: RMSNorm, heads: Array) -> Array:
    """Normalizes queries or keys `[N, G, L, H, D]`, by head or all heads together."""
    if self.config.qk_norm == "head":
      return norm(heads)
    return norm(heads.reshape(*heads.shape[:3], -1)).reshape(heads.shape)

  def __call__(
    self,
    x: Array,
    positions: Array,
    rope: Array,
    sliding: Array,
    memory: tuple[Memory, ...],
    segments: Array | None = None,
  ) -> tuple[Array, Array, Array]:
    """Attends from the new tokens to themselves and to the memory.

    Args:
      x: `[N, G, L, E]`.
      positions: `[N, G, L]` int32.
      rope: `[2, N, G, L, R / 2]`, cosines and sines of the positions.
      sliding: bool scalar, whether to attend to the sliding window only.
      memory: keys, values and positions of earlier tokens, in any number of parts.
      segments: `[N, G, L]` int32, number of each token's text in its row, for rows packed
        with several texts. It requires an empty memory.

    Returns:
      The output `[N, G, L, E]`, and the keys and values `[N, G, K, L, D]` of these tokens.
    """
    c = self.config
    queries, keys, values = self._project(x)
    queries, keys = rotate(queries, rope), rotate(keys, rope).swapaxes(2, 3)
    values = values.swapaxes(2, 3)
    repeats = c.num_heads // c.num_kv_heads
    queries = queries.reshape(*x.shape[:3], c.num_kv_heads, repeats, c.head_dim)
    memory = (*memory, (keys, values, positions))
    # The backward pass computes scores again: they are the largest arrays by far, and
    # writing them for every layer of the scan takes longer than multiplying again.
    recomputed = jax.checkpoint(attend, prevent_cse=False, static_argnums=0)
    heads = recomputed(c, queries, positions, sliding, memory, segments)
    heads = heads.reshape(*x.shape[:3], c.num_heads, c.head_dim).astype(x.dtype)
    out = jnp.einsum("nglhd,hde->ngle", heads, self.out.astype(x.dtype))
    if c.out_bias:
      out += self.out_bias.astype(x.dtype)
    return out, keys, values
