"""A decoder with a scalar head: the critic, and the reward model."""

import dataclasses

import flax.linen as nn
import jax.numpy as jnp

from pgax.models.cache import Cache
from pgax.models.config import DecoderConfig
from pgax.models.decoder import Decoder, Output
from pgax.models.layout import Layout
from pgax.types import Array, PyTree

DECODER = "decoder"


class ScalarDecoder(nn.Module):
  """A decoder that computes one number per token instead of logits.

  As a critic, it computes the value at every token. As a reward model, it scores a sequence
  by the number at its last token; see `sequence_scores`. The head starts at zero, so all
  outputs do, regardless of the decoder's weights.
  """

  config: DecoderConfig
  layout: Layout | None = None

  def setup(self):
    self.decoder = Decoder(self.config, layout=self.layout, name=DECODER)
    zeros = nn.initializers.zeros
    init = nn.with_logical_partitioning(zeros, ("embed",))
    self.head = self.param("head", init, (self.config.embed_dim,))
    self.bias = self.param("bias", nn.with_logical_partitioning(zeros, ()), ())

  def __call__(
    self, tokens: Array, positions: Array, cache: Cache | None = None
  ) -> tuple[Array, Cache]:
    """Computes outputs `[N, G, L]` after each token, and the cache; see `Decoder`."""
    output = self.features(tokens, positions, cache)
    return self.outputs(output.hidden), output.cache

  def features(
    self,
    tokens: Array,
    positions: Array,
    cache: Cache | None = None,
    segments: Array | None = None,
    experts: Array | None = None,
  ) -> Output:
    """Computes the `Output` of the decoder; see `Decoder.features`."""
    return self.decoder.features(tokens, positions, cache, segments, experts)

  def outputs(self, hidden: Array) -> Array:
    """Computes outputs `[...]` of hidden states `[..., E]`, float32."""
    return hidden.astype(jnp.float32) @ self.head + self.bias


def with_decoder(params: PyTree, decoder_params: PyTree) -> PyTree:
  """Replaces the decoder of a `ScalarDecoder`, and keeps its head.

  Args:
    params: parameters of a `ScalarDecoder`.
    decoder_params: parameters of a `Decoder` of the same configuration; an unembedding is
      ignored if the `ScalarDecoder` has none.

  Returns:
    Parameters of a `ScalarDecoder`.
  """
  names = params["params"][DECODER]
  decoder = {name: decoder_params["params"][name] for name in names}
  return dict(params) | {"params": dict(params["params"]) | {DECODER: decoder}}


def headless(config: DecoderConfig) -> DecoderConfig:
  """Removes the unembedding, which a scalar head replaces, from a configuration."""
  return dataclasses.replace(config, tie_embeddings=True)
