"""pgax: policy-gradient reinforcement learning of language models, as pure functions."""

from pgax import algorithms, models, sampling, types
from pgax.ops import advantages, aggregation, kl, logprobs, masking, surrogates
from pgax.types import Batch, Example, Rollout, Scored, SurrogateLoss

__all__ = [
  "Batch",
  "Example",
  "Rollout",
  "Scored",
  "SurrogateLoss",
  "advantages",
  "aggregation",
  "algorithms",
  "kl",
  "logprobs",
  "masking",
  "models",
  "sampling",
  "surrogates",
  "types",
]
__version__ = "0.1.0"
