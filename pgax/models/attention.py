"""Grouped-query attention over a shared prefix, a cached suffix and the new tokens."""

import flax.linen as nn

from pgax.models.attend import Part, ScoreScale, TokenPositions, attend, window_of
from pgax.models.cache import write
from pgax.models.config import DecoderConfig
from pgax.models.layers import RMSNorm, adapted, matrix, product, zeros
from pgax.models.layout import BATCH, Layout, constrain
from pgax.models.rope import rotate
from pgax.types import Array


class Attention(nn.Module):
  """Grouped-query attention (arXiv 2305.13245).

  One softmax spans prefix, suffix and new tokens. So sharing a prompt among its completions
  is exact, and the prompt's keys and values are in memory once.
  """

  config: DecoderConfig
  layout: Layout | None = None

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
    kv_axes = ("embed", "kv_heads", "head")
    self.query = matrix(self, "query", init, ("embed", "heads", "head"), q_shape)
    self.key = matrix(self, "key", init, kv_axes, kv_shape)
    self.value = matrix(self, "value", init, kv_axes, kv_shape)
    out_shape = (c.num_heads, c.head_dim, c.embed_dim)
    self.out = matrix(self, "out", out, ("heads", "head", "embed"), out_shape)
    part = nn.with_logical_partitioning
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
    weights = {"query": self.query, "key": self.key, "value": self.value}
    heads = []
    for name, weight in weights.items():
      projected = adapted(self, name, x, product(x, weight))
      # In decoding a projection has all rows of some heads, and attention, like the cache,
      # all heads of some rows.
      for axis in ("heads" if name == "query" else "kv_heads", "attended_heads"):
        projected = constrain(self.layout, projected, BATCH, None, None, axis)
      heads.append(projected)
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
    memory: tuple[Part, ...],
    segments: Array | None = None,
    index: Array | None = None,
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
      index: int32 scalar, slot of the last part of the memory that these tokens are written
        to before they are attended to; that part's positions are those afterwards. None
        attends to them beside the memory.

    Returns:
      The output `[N, G, L, E]`, and the keys and values `[N, G, K, L, D]` of these tokens,
      or with an index those of the last part, `narrow` as they came.
    """
    c = self.config
    queries, keys, values = self._project(x)
    queries, keys = rotate(queries, rope), rotate(keys, rope).swapaxes(2, 3)
    values = values.swapaxes(2, 3)
    repeats = c.num_heads // c.num_kv_heads
    queries = queries.reshape(*x.shape[:3], c.num_kv_heads, repeats, c.head_dim)
    own = Part(keys, values, positions)
    if index is not None:
      *memory, slots = memory
      keys, values = write(slots.keys, keys, index), write(slots.values, values, index)
      all_slots = (*x.shape[:2], c.num_kv_heads, -1, c.head_dim)
      own = Part(keys.reshape(all_slots), values.reshape(all_slots), slots.positions)
    heads = attend(
      queries,
      (*memory, own),
      TokenPositions(positions, segments),
      window_of(sliding, c.sliding_window),
      ScoreScale((c.query_scalar or c.head_dim) ** -0.5, c.attention_softcap),
      c.attention,
      self.layout,
    )
    heads = heads.reshape(*x.shape[:3], c.num_heads, c.head_dim).astype(x.dtype)
    for axis in ("attended_heads", "heads"):
      heads = constrain(self.layout, heads, BATCH, None, None, axis)
    out = adapted(self, "out", heads, product(heads, self.out, inputs=2))
    if c.out_bias:
      out += self.out_bias.astype(x.dtype)
    return out, keys, values
