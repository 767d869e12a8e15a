"""Flax Linen modules: a decoder with an explicit cache, and one with a scalar head."""

from pgax.models.config import DecoderConfig
from pgax.models.decoder import Decoder
from pgax.models.heads import ScalarDecoder
from pgax.models.scoring import completion_logits, completion_outputs
from pgax.models.sequence import sequence_scores

__all__ = [
  "Decoder",
  "DecoderConfig",
  "ScalarDecoder",
  "completion_logits",
  "completion_outputs",
  "sequence_scores",
]
