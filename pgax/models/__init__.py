"""The decoder: a Flax Linen module whose cache is explicit; and the critic."""

from pgax.models.config import DecoderConfig
from pgax.models.decoder import Decoder
from pgax.models.heads import Critic
from pgax.models.scoring import completion_logits, completion_outputs

__all__ = [
  "Critic",
  "Decoder",
  "DecoderConfig",
  "completion_logits",
  "completion_outputs",
]
