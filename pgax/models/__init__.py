"""The decoder: a Flax Linen module whose cache is explicit; critic and scorer."""

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
