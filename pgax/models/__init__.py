"""The decoder: a Flax Linen module whose cache is explicit."""

from pgax.models.config import DecoderConfig
from pgax.models.decoder import Decoder
from pgax.models.scoring import completion_logits

__all__ = ["Decoder", "DecoderConfig", "completion_logits"]
