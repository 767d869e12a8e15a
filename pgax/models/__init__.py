"""Flax Linen modules: a decoder with an explicit cache, and one with a scalar head."""

from pgax.models.config import DecoderConfig
from pgax.models.decoder import Decoder, Output
from pgax.models.heads import ScalarDecoder
from pgax.models.scoring import completion_features, sequence_scores

__all__ = [
  "Decoder",
  "DecoderConfig",
  "Output",
  "ScalarDecoder",
  "completion_features",
  "sequence_scores",
]
