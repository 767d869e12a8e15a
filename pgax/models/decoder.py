"""The decoder: one function for training and for decoding."""

from typing import NamedTuple

import flax.linen as nn
import jax.numpy as jnp
import numpy as np

from pgax.models.attend import Part
from pgax.models.attention import Attention
from pgax.models.cache import NEVER, Cache, KeyValues, append, take_rows
from pgax.models.config import DecoderConfig
from pgax.models.experts import REPLAY, ROUTING, Experts
from pgax.models.layers import GatedMLP, RMSNorm, fan_in
from pgax.models.rope import RopeScaling, angles, frequencies
from pgax.types import Array

LAYERS = "layers"  # the logical axis that parameters of all layers are stacked on


class LayerInputs(NamedTuple):
  """The inputs that are the same in all layers.

  Attributes:
    positions: `[N, G, L]` int32, positions of the new tokens.
    rope: `[kinds, 2, N, G, L, R / 2]`, cosines and sines of the positions, for each kind of
      layer; see `rope_kinds`.
    memory_positions: positions `[N, G, S]` in each part of the memory, or `[N, 1, S]` if
      the group shares it.
    memory_rows: for each part of the memory the rows `[N, G]` of it that completions attend
      to, or None if there is nothing to select.
    segments: `[N, G, L]` int32, number of each token's text in its row; None if every row
      is one text.
  """

  positions: Array
  rope: Array
  memory_positions: tuple[Array, ...]
  memory_rows: tuple[Array | None, ...]
  segments: Array | None


def rope_kinds(config: DecoderConfig) -> tuple[int, ...]:
  """Returns the kind of RoPE of each layer: global, in sliding layers, or none at all."""
  c, local = config, int(config.local_rope_theta > 0)
  rotated = c.rope_layers or (True,) * c.num_layers
  layers = zip(c.is_sliding, rotated, strict=True)
  return tuple(local * sliding if rope else 1 + local for sliding, rope in layers)


class LayerKind(NamedTuple):
  """What differs between layers, stacked on the axis of layers.

  Attributes:
    sliding: bool, whether the layer attends to the sliding window only.
    rope: int32, index of the layer's cosines and sines in `LayerInputs.rope`.
  """

  sliding: Array
  rope: Array


class Block(nn.Module):
  """Attention and feed-forward layer, each normalized and added to the residual stream.

  The arguments are in the order of a scan over layers: the carry `x`, then what is the same
  in all layers, then what each layer has of its own.
  """

  config: DecoderConfig

  def setup(self):
    c = self.config
    self.attention = Attention(c)
    if c.num_experts:
      self.experts = Experts(c)
    else:
      self.mlp = GatedMLP(c)
    if c.norm_placement != "post":
      self.attention_norm, self.mlp_norm = RMSNorm(c), RMSNorm(c)
    if c.norm_placement != "pre":
      self.attention_post_norm, self.mlp_post_norm = RMSNorm(c), RMSNorm(c)

  def __call__(
    self,
    x: Array,
    inputs: LayerInputs,
    kind: LayerKind,
    memory: tuple[tuple[Array, Array], ...],
  ) -> tuple[Array, tuple[Array, Array]]:
    """Applies one layer.

    Args:
      x: `[N, G, L, E]`.
      inputs: inputs that are the same in all layers.
      kind: kind of the layer.
      memory: keys and values of each part of the memory, in this layer.

    Returns:
      The new `x`, and the keys and values `[N, G, K, L, D]` of these tokens.
    """
    c = self.config
    # Rows are taken layer by layer: all layers at once would copy the prompts.
    memory = tuple(
      Part(take_rows(keys, rows), take_rows(values, rows), positions)
      for (keys, values), positions, rows in zip(
        memory, inputs.memory_positions, inputs.memory_rows, strict=True
      )
    )
    rope = inputs.rope[0 if len(inputs.rope) == 1 else kind.rope]
    before = self.attention_norm(x) if c.norm_placement != "post" else x
    out, *new = self.attention(
      before, inputs.positions, rope, kind.sliding, memory, inputs.segments
    )
    out = self.attention_post_norm(out) if c.norm_placement != "pre" else out
    x = x + out * c.residual_scale
    before = self.mlp_norm(x) if c.norm_placement != "post" else x
    if c.num_experts:
      out = self.experts(before, inputs.positions < NEVER)
    else:
      out = self.mlp(before)
    out = self.mlp_post_norm(out) if c.norm_placement != "pre" else out
    return x + out * c.residual_scale, tuple(new)


def _scanned(config: DecoderConfig) -> type[nn.Module]:
  """Builds all blocks as one: compiled once, parameters stacked on a leading axis."""
  block = nn.remat(Block, prevent_cse=False) if config.remat else Block
  return nn.scan(
    block,
    variable_axes={"params": 0, ROUTING: 0, REPLAY: 0},
    split_rngs={"params": True},
    in_axes=(nn.broadcast, 0, 0),
    out_axes=0,
    length=config.num_layers,
    metadata_params={nn.PARTITION_NAME: LAYERS},
  )


class Decoder(nn.Module):
  """A decoder-only transformer with an explicit cache.

  `apply(params, tokens, positions, cache) -> (logits, cache)` reads any number of tokens
  of every completion at once: a prompt, a complete text in training, or one token of
  each in decoding.
  """

  config: DecoderConfig

  def setup(self):
    c = self.config
    # Times sqrt(width), it starts the residual stream and tied logits at unit scale.
    normal = nn.initializers.normal(c.embed_dim**-0.5)
    init = nn.with_logical_partitioning(normal, ("vocab", "embed"))
    self.embedding = self.param("embedding", init, (c.vocab_size, c.embed_dim))
    self.blocks = _scanned(c)(c)
    self.final_norm = RMSNorm(c)
    if not c.tie_embeddings:
      init = nn.with_logical_partitioning(fan_in, ("embed", "vocab"))
      self.unembedding = self.param("unembedding", init, (c.embed_dim, c.vocab_size))

  def __call__(
    self, tokens: Array, positions: Array, cache: Cache | None = None
  ) -> tuple[Array, Cache]:
    """Computes logits of the token after each token, and the cache with these tokens.

    Args:
      tokens: `[N, G, L]` int32 ids.
      positions: `[N, G, L]` int32, `cache.NEVER` on padding (see `token_positions`).
      cache: cache of earlier tokens; None if there are none.

    Returns:
      Logits `[N, G, L, V]`, float32, and a `Cache` whose suffix includes these tokens.
    """
    hidden, cache = self.features(tokens, positions, cache)
    return self.unembed(hidden), cache

  def features(
    self,
    tokens: Array,
    positions: Array,
    cache: Cache | None = None,
    segments: Array | None = None,
  ) -> tuple[Array, Cache]:
    """Computes the last hidden states, and the cache.

    Args:
      tokens: `[N, G, L]` int32 ids.
      positions: `[N, G, L]` int32, `cache.NEVER` on padding; with segments, the position of
        each token in its own text.
      cache: cache of earlier tokens; None if there are none.
      segments: `[N, G, L]` int32, number of each token's text in its row, for rows packed
        with several texts. A token attends to its own segment only. None if every row is
        one text.

    Returns:
      Hidden states `[N, G, L, E]`, and a `Cache`, which is meaningless with segments.

    Raises:
      ValueError: for segments with a cache, whose tokens belong to no segment.
    """
    c = self.config
    if segments is not None and cache is not None:
      raise ValueError(
        "segments can't be combined with a cache: its tokens have no segment"
      )
    x = self.embedding[tokens]
    scale = c.embedding_scale * (c.embed_dim**0.5 if c.scale_embeddings else 1.0)
    x = (x * scale).astype(c.dtype)
    if cache is None:
      cache = Cache(None, None, jnp.int32(0))
    parts = [(cache.prefix, cache.prefix_rows), (cache.suffix, None)]
    parts = [(part, rows) for part, rows in parts if part is not None]
    memory_positions = tuple(take_rows(part.positions, rows) for part, rows in parts)
    inputs = LayerInputs(
      positions=positions,
      rope=self._rope(positions),
      memory_positions=memory_positions,
      memory_rows=tuple(rows for _, rows in parts),
      segments=segments,
    )
    memory = tuple((part.keys, part.values) for part, _ in parts)
    kinds = LayerKind(jnp.array(c.is_sliding), jnp.array(rope_kinds(c), jnp.int32))
    x, (keys, values) = self.blocks(x, inputs, kinds, memory)
    return self.final_norm(x), append(cache, KeyValues(keys, values, positions))

  def _rope(self, positions: Array) -> Array:
    """Computes cosines and sines `[kinds, 2, N, G, L, R / 2]` for all layers."""
    c = self.config
    kinds = [frequencies(c.rope_theta, c.rope_dim, c.rope_scaling)]
    if c.local_rope_theta:
      kinds.append(frequencies(c.local_rope_theta, c.rope_dim, RopeScaling()))
    if not all(c.rope_layers):  # an angle of 0 rotates nothing
      kinds.append((np.zeros(c.rope_dim // 2, np.float32), 1.0))
    return jnp.stack([angles(positions, *kind) for kind in kinds])

  def unembed(self, hidden: Array) -> Array:
    """Computes logits `[..., V]` of hidden states `[..., E]`, float32."""
    c = self.config
    weights = self.embedding.T if c.tie_embeddings else self.unembedding
    logits = jnp.matmul(
      hidden, weights.astype(hidden.dtype), preferred_element_type=jnp.float32
    )
    logits = logits / c.logit_divisor if c.logit_divisor != 1 else logits
    return (
      jnp.tanh(logits / c.logit_softcap) * c.logit_softcap if c.logit_softcap else logits
    )
