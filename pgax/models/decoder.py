"""The decoder: one function for training and for decoding."""

import flax.linen as nn
import jax.numpy as jnp

from pgax.models.attention import Attention
from pgax.models.cache import Cache, Segment, append, pick
from pgax.models.config import DecoderConfig
from pgax.models.layers import GatedMLP, RMSNorm, fan_in
from pgax.models.rope import RopeScaling, angles, frequencies
from pgax.types import Array

LAYERS = "layers"  # the logical axis that parameters of all layers are stacked on


class Block(nn.Module):
  """Attention and feed-forward layer, each normalised and added to the residual stream.

  Keys and values of the layer's memory and its own come and go as a scan over the layers
  hands them on; what is the same in all layers comes in `shared`.
  """

  config: DecoderConfig

  def setup(self):
    c = self.config
    self.attention_norm, self.mlp_norm = RMSNorm(c), RMSNorm(c)
    self.attention, self.mlp = Attention(c), GatedMLP(c)
    if c.post_norms:
      self.attention_post_norm, self.mlp_post_norm = RMSNorm(c), RMSNorm(c)

  def __call__(
    self,
    x: Array,
    shared: tuple[Array, Array, tuple[Array, ...], tuple[Array | None, ...], Array | None],
    slides: Array,
    remembered: tuple[tuple[Array, Array], ...],
  ) -> tuple[Array, tuple[Array, Array]]:
    """One layer.

    Args:
      x: `[N, G, L, E]`.
      shared: positions `[N, G, L]`; cosines and sines `[kinds, 2, N, G, L, D / 2]`, kind 1
        for sliding layers if they have their own; positions of the memory's parts;
        for each part the rows `[N, G]` of it that completions read, or None; and the
        segments `[N, G, L]` of the tokens, or None.
      slides: bool scalar, whether the layer sees only its window.
      remembered: keys and values of the memory's parts, of this layer.

    Returns:
      The new `x`, and the keys and values `[N, G, K, L, D]` of these tokens.
    """
    positions, turns, memory_positions, rows, segments = shared
    turn = turns[0] if len(turns) == 1 else turns[slides.astype(jnp.int32)]
    # Looked up layer by layer: all layers at once would be a second copy of the prompts.
    memory = tuple(
      (pick(keys, which), pick(values, which), at)
      for (keys, values), at, which in zip(remembered, memory_positions, rows, strict=True)
    )
    out, *new = self.attention(
      self.attention_norm(x), positions, turn, slides, memory, segments
    )
    x = x + (self.attention_post_norm(out) if self.config.post_norms else out)
    out = self.mlp(self.mlp_norm(x))
    x = x + (self.mlp_post_norm(out) if self.config.post_norms else out)
    return x, tuple(new)


def _scanned(config: DecoderConfig) -> type[nn.Module]:
  """All blocks as one: compiled once, its parameters stacked on a leading axis."""
  block = nn.remat(Block, prevent_cse=False) if config.remat else Block
  return nn.scan(
    block,
    variable_axes={"params": 0},
    split_rngs={"params": True},
    in_axes=(nn.broadcast, 0, 0),
    out_axes=0,
    length=config.num_layers,
    metadata_params={nn.PARTITION_NAME: LAYERS},
  )


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
    self.blocks = _scanned(c)(c)
    self.final_norm = RMSNorm(c)
    if not c.tie_embeddings:
      init = nn.with_logical_partitioning(fan_in, ("embed", "vocab"))
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
    """The last hidden states, and the cache.

    Args:
      tokens: as for `__call__`.
      positions: as for `__call__`; with segments, of each token in its own text.
      cache: as for `__call__`.
      segments: `[N, G, L]` int32, where rows are packed with several texts: a token sees
        those of its own segment only. None where each row is one text.

    Returns:
      `[N, G, L, E]`, and a `Cache`, which is of no use with segments.

    Raises:
      ValueError: for segments with a cache, which would be of no segment.
    """
    c = self.config
    if segments is not None and cache is not None:
      raise ValueError("segments are given with a cache; packed rows have none before them")
    x = self.embedding[tokens]
    x = (x * c.embed_dim**0.5 if c.scale_embeddings else x).astype(c.dtype)
    if cache is None:
      cache = Cache(None, None, jnp.int32(0))
    memory = [(cache.prefix, cache.rows), (cache.suffix, None)]
    memory = [(part, rows) for part, rows in memory if part is not None]
    memory_positions = tuple(pick(part.positions, rows) for part, rows in memory)
    which = tuple(rows for _, rows in memory)
    shared = (positions, self._turns(positions), memory_positions, which, segments)
    remembered = tuple((part.keys, part.values) for part, _ in memory)
    x, (keys, values) = self.blocks(x, shared, jnp.array(c.slides), remembered)
    return self.final_norm(x), append(cache, Segment(keys, values, positions))

  def _turns(self, positions: Array) -> Array:
    """Cosines and sines `[kinds, 2, N, G, L, D / 2]`, once for all layers."""
    c = self.config
    kinds = [frequencies(c.rope_theta, c.head_dim, c.rope_scaling)]
    if c.local_rope_theta:
      kinds.append(frequencies(c.local_rope_theta, c.head_dim, RopeScaling()))
    return jnp.stack([angles(positions, *kind) for kind in kinds])

  def unembed(self, hidden: Array) -> Array:
    """Logits `[..., V]` of hidden states `[..., E]`, float32."""
    c = self.config
    weights = self.embedding.T if c.tie_embeddings else self.unembedding
    logits = jnp.matmul(
      hidden, weights.astype(hidden.dtype), preferred_element_type=jnp.float32
    )
    return (
      jnp.tanh(logits / c.logit_softcap) * c.logit_softcap if c.logit_softcap else logits
    )
