"""Grouped-query attention with rotary positions, over a shared prefix and a suffix."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from pgax.models.cache import Segment, write
from pgax.models.config import DecoderConfig
from pgax.types import Array

_HIDDEN = -1e30  # finite, so that a query that sees nothing gives a mean and not nan


def rotate(x: Array, positions: Array, theta: float) -> Array:
  """Rotary position embedding: turns pairs of features by position-dependent angles.

  Feature `i` of the first half and of the second half turn together by
  `position * theta**(-2 i / D)`. Source: RoFormer, arXiv 2104.09864.

  Args:
    x: `[N, G, L, H, D]` queries or keys.
    positions: `[N, G, L]` int.
    theta: base of the wavelengths.

  Returns:
    `[N, G, L, H, D]`, the dtype of `x`.
  """
  half = x.shape[-1] // 2
  frequency = theta ** (-jnp.arange(half, dtype=jnp.float32) / half)
  angle = positions[..., None, None].astype(jnp.float32) * frequency
  sin, cos = jnp.sin(angle), jnp.cos(angle)
  first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
  turned = [first * cos - second * sin, second * cos + first * sin]
  return jnp.concatenate(turned, axis=-1).astype(x.dtype)


def _scores(queries: Array, keys: Array, query_pos: Array, key_pos: Array) -> Array:
  """Scaled scores `[N, G, K, R, L, S]` of queries `[N, G, L, K, R, D]`, float32."""
  if keys.shape[1] == 1:  # one prefix for the whole group
    scores = jnp.einsum("nglkrd,nskd->ngkrls", queries, keys[:, 0])
  else:
    scores = jnp.einsum("nglkrd,ngskd->ngkrls", queries, keys)
  visible = key_pos[:, :, None, :] <= query_pos[..., None]
  scale = queries.shape[-1] ** -0.5
  return jnp.where(visible[:, :, None, None], scores.astype(jnp.float32) * scale, _HIDDEN)


def _mix(probs: Array, values: Array) -> Array:
  """Values `[N, G, S, K, D]` mixed by probabilities, to `[N, G, L, K, R, D]`."""
  probs = probs.astype(values.dtype)
  if values.shape[1] == 1:
    return jnp.einsum("ngkrls,nskd->nglkrd", probs, values[:, 0])
  return jnp.einsum("ngkrls,ngskd->nglkrd", probs, values)


class Attention(nn.Module):
  """Grouped-query attention (arXiv 2305.13245).

  One softmax spans prefix and suffix, so sharing a prompt among its completions is
  exact, and the prompt's keys and values stand in memory once.
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

  def __call__(
    self,
    x: Array,
    positions: Array,
    layer: int,
    prefix: Segment | None,
    suffix: Segment,
    index: Array,
  ) -> tuple[Array, Array, Array]:
    """Reads `x`, writes its keys and values into the suffix, and attends to what is seen.

    Args:
      x: `[N, G, L, E]`.
      positions: `[N, G, L]` int32.
      layer: which layer's keys and values these are.
      prefix: `[N, 1, P, ...]`, or None.
      suffix: `[N, G, S, ...]`, its positions already those after this call.
      index: int32 scalar, the slot that the first of the `L` tokens goes to.

    Returns:
      The output `[N, G, L, E]` and the layer's new keys and values `[N, G, S, K, D]`.
    """
    c = self.config
    queries = jnp.einsum("ngle,ehd->nglhd", x, self.query)
    queries = rotate(queries, positions, c.rope_theta)
    new_keys = rotate(jnp.einsum("ngle,ekd->nglkd", x, self.key), positions, c.rope_theta)
    new_values = jnp.einsum("ngle,ekd->nglkd", x, self.value)
    keys = write(suffix.keys[layer], new_keys, index)
    values = write(suffix.values[layer], new_values, index)

    repeats = c.num_heads // c.num_kv_heads
    queries = queries.reshape(*x.shape[:3], c.num_kv_heads, repeats, c.head_dim)
    scores = [_scores(queries, keys, positions, suffix.positions)]
    mixed_values = [values]
    if prefix is not None:
      scores.append(_scores(queries, prefix.keys[layer], positions, prefix.positions))
      mixed_values.append(prefix.values[layer])
    probs = jax.nn.softmax(jnp.concatenate(scores, axis=-1), axis=-1)
    split = jnp.split(probs, [keys.shape[2]], axis=-1)
    mixed = sum(_mix(p, v) for p, v in zip(split, mixed_values, strict=False))
    heads = mixed.reshape(*x.shape[:3], c.num_heads, c.head_dim)
    return jnp.einsum("nglhd,hde->ngle", heads, self.out), keys, values
