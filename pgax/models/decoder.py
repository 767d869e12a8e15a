"""The decoder: one function for training and for decoding."""

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from pgax.models.block import LayerInputs, LayerKind, Unrolled, rope_kinds, scanned
from pgax.models.cache import Cache, KeyValues, append, take_rows, write
from pgax.models.config import DecoderConfig
from pgax.models.experts import Routing
from pgax.models.layers import RMSNorm, fan_in, matrix
from pgax.models.layout import BATCH, Layout, constrain
from pgax.models.rope import RopeScaling, angles, frequencies
from pgax.types import Array


@flax.struct.dataclass
class Output:
  """The output of a decoder.

  Attributes:
    hidden: `[N, G, L, E]`, last hidden states.
    cache: the cache with these tokens; undefined with segments.
    routing: choices of the routers; None for a model without experts.
  """

  hidden: Array
  cache: Cache
  routing: Routing | None = None


class Decoder(nn.Module):
  """A decoder-only transformer with an explicit cache.

  `apply(params, tokens, positions, cache) -> (logits, cache)` reads any number of tokens
  of every completion at once: a prompt, a complete text in training, or one token of
  each in decoding.

  Attributes:
    config: configuration of the decoder.
    unrolled: whether each layer has separate arrays of parameters and cache; see
      `parameters.unroll` and `cache.unroll`.
    layout: where activations are on a mesh of devices; None leaves it to the compiler.
  """

  config: DecoderConfig
  unrolled: bool = False
  layout: Layout | None = None

  def setup(self):
    c = self.config
    # Times sqrt(width), it starts the residual stream and tied logits at unit scale.
    normal = nn.initializers.normal(c.embed_dim**-0.5)
    shape = c.vocab_size, c.embed_dim
    self.embedding = matrix(self, "embedding", normal, ("vocab", "embed"), shape)
    blocks = Unrolled if self.unrolled else scanned(c)
    self.blocks = blocks(c, self.layout)
    self.final_norm = RMSNorm(c)
    if not c.tie_embeddings:
      shape = c.embed_dim, c.vocab_size
      self.unembedding = matrix(self, "unembedding", fan_in, ("embed", "vocab"), shape)

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
    output = self.features(tokens, positions, cache)
    return self.unembed(output.hidden), output.cache

  def features(
    self,
    tokens: Array,
    positions: Array,
    cache: Cache | None = None,
    segments: Array | None = None,
    experts: Array | None = None,
  ) -> Output:
    """Computes the last hidden states, the cache and the routing.

    Args:
      tokens: `[N, G, L]` int32 ids.
      positions: `[N, G, L]` int32, `cache.NEVER` on padding; with segments, the position of
        each token in its own text.
      cache: cache of earlier tokens; None if there are none.
      segments: `[N, G, L]` int32, number of each token's text in its row, for rows packed
        with several texts. A token attends to its own segment only. None if every row is
        one text.
      experts: `[N, G, L, layers, k]`, experts that compute the tokens; None lets the router
        choose. Ignored by a model without experts.

    Returns:
      An `Output`.

    Raises:
      ValueError: for segments with a cache, whose tokens belong to no segment.
    """
    c = self.config
    if segments is not None and cache is not None:
      raise ValueError(
        "segments can't be combined with a cache: its tokens have no segment"
      )
    # Cast first, so that parameters that are held in this dtype give the same.
    x = self.embedding[tokens].astype(c.compute_dtype)
    # Every device looks up its columns for the rows of all, and rows are exchanged for
    # columns, which moves less data than the table.
    x = constrain(self.layout, x, BATCH, None, None, "embed")
    x = constrain(self.layout, x, BATCH)
    x = x * (c.embedding_scale * (c.embed_dim**0.5 if c.scale_embeddings else 1.0))
    if cache is None:
      cache = Cache(None, None, jnp.int32(0))
    written = None
    if self.unrolled and cache.suffix is not None:
      # Slots are written before they are read, so that XLA needs no copy of them.
      slots = write(cache.suffix.positions, positions, cache.index, axis=-1)
      cache = cache.replace(suffix=cache.suffix.replace(positions=slots))
      written = cache.index
    parts = [(cache.prefix, cache.prefix_rows), (cache.suffix, None)]
    parts = [(part, rows) for part, rows in parts if part is not None]
    inputs = LayerInputs(
      positions=positions,
      rope=self._rope(positions),
      memory_positions=tuple(take_rows(part.positions, rows) for part, rows in parts),
      memory_rows=tuple(rows for _, rows in parts),
      segments=segments,
      index=written,
    )
    memory = tuple((part.keys, part.values) for part, _ in parts)
    kinds = LayerKind(jnp.array(c.is_sliding), jnp.array(rope_kinds(c), jnp.int32))
    if experts is not None:
      experts = jnp.moveaxis(experts, -2, 0)
    x, (keys, values, routing) = self.blocks(x, inputs, kinds, memory, experts)
    if written is None:
      cache = append(cache, KeyValues(keys, values, positions))
    else:
      suffix = KeyValues(keys, values, slots)
      cache = cache.replace(suffix=suffix, index=cache.index + positions.shape[-1])
    if routing is not None:
      load = jax.tree.map(lambda x: jnp.sum(x, axis=0), routing.load)
      routing = Routing(jnp.moveaxis(routing.experts, 0, -2), load)
    return Output(self.final_norm(x), cache, routing)

  def _rope(self, positions: Array) -> Array:
    """Computes cosines and sines `[kinds, 2, N, G, L, R / 2]` for all layers."""
    c = self.config
    kinds = [frequencies(c.rope_theta, c.rope_dim, c.rope_scaling)]
    if c.local_rope_theta:
      kinds.append(frequencies(c.local_rope_theta, c.rope_dim, RopeScaling()))
    if not all(c.rope_layers):  # an angle of 0 rotates nothing
      kinds.append((np.zeros(c.rope_dim // 2, np.float32), 1.0))
    return jnp.stack([angles(positions, *kind) for kind in kinds])

  def output_matrix(self) -> Array:
    """Returns the matrix `[E, V]` that hidden states are multiplied by for logits."""
    return self.embedding.T if self.config.tie_embeddings else self.unembedding

  def unembed(self, hidden: Array) -> Array:
    """Computes logits `[..., V]` of hidden states `[..., E]`, float32."""
    weights = self.output_matrix().astype(hidden.dtype)
    products = jnp.matmul(hidden, weights, preferred_element_type=jnp.float32)
    # In decoding, columns are exchanged for rows: sampling needs a complete row.
    for columns in ("vocab", "vocab_of_rows", None):
      axes = BATCH, *[None] * (hidden.ndim - 2), columns
      products = constrain(self.layout, products, *axes)
    return finish_logits(self.config, products)


def finish_logits(config: DecoderConfig, products: Array) -> Array:
  """Turns the products of hidden states and the output matrix into logits."""
  c = config
  logits = products / c.logit_divisor if c.logit_divisor != 1 else products
  return jnp.tanh(logits / c.logit_softcap) * c.logit_softcap if c.logit_softcap else logits
