"""A decoder with a scalar head: the critic, and the scorer of whole sequences."""

import dataclasses

import flax.linen as nn
import jax.numpy as jnp

from pgax.models.cache import Cache
from pgax.models.config import DecoderConfig
from pgax.models.decoder import Decoder
from pgax.types import Array, PyTree

DECODER = "decoder"


class ScalarDecoder(nn.Module):
  """A decoder of its own with one number for every token in the place of logits.

  The head starts at zero, so that every output does, whatever the decoder's weights. The
  same module scores whole sequences, by the number at their last token: see
  `sequence_scores`.
  """

  config: DecoderConfig

  def setup(self):
    self.decoder = Decoder(self.config, name=DECODER)
    zeros = nn.initializers.zeros
    init = nn.with_logical_partitioning(zeros, ("embed",))
    self.head = self.param("head", init, (self.config.embed_dim,))
    self.bias = self.param("bias", nn.with_logical_partitioning(zeros, ()), ())

  def __call__(
    self, tokens: Array, positions: Array, cache: Cache | None = None
  ) -> tuple[Array, Cache]:
    """Outputs `[N, G, L]` after each token, and the cache; as `Decoder` otherwise."""
    hidden, cache = self.features(tokens, positions, cache)
    return self.outputs(hidden), cache

  def features(
    self, tokens: Array, positions: Array, cache: Cache | None = None
  ) -> tuple[Array, Cache]:
    """The last hidden states `[N, G, L, E]`, and the cache."""
    return self.decoder.features(tokens, positions, cache)

  def outputs(self, hidden: Array) -> Array:
    """Outputs `[...]` of hidden states `[..., E]`, float32."""
    return hidden.astype(jnp.float32) @ self.head + self.bias


def with_decoder(params: PyTree, decoder_params: PyTree) -> PyTree:
  """The critic's parameters with those of a decoder in the place of its own.

  Args:
    params: of a `ScalarDecoder`.
    decoder_params: of a `Decoder` of the same configuration, or of one that has an
      unembedding beside.

  Returns:
    Parameters of a `ScalarDecoder`; the head is as it was.
  """
  own = params["params"][DECODER]
  inner = dict(params["params"]) | {
    DECODER: {name: decoder_params["params"][name] for name in own}
  }
  return dict(params) | {"params": inner}


def headless(config: DecoderConfig) -> DecoderConfig:
  """A decoder's configuration without the unembedding, which a scorer has no use for."""
  return dataclasses.replace(config, tie_embeddings=True)
