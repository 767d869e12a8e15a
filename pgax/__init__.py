"""pgax: policy-gradient reinforcement learning of language models, as pure functions."""

from pgax import algorithms, models, sampling, types
from pgax.ops import (
  advantages,
  aggregation,
  correction,
  entropy,
  kl,
  logprobs,
  masking,
  preferences,
  returns,
  shaping,
  surrogates,
  values,
)
from pgax.types import AdvantageInputs, Batch, Example, Feedback, Rollout, SurrogateLoss

__all__ = [
  "AdvantageInputs",
  "Batch",
  "Example",
  "Feedback",
  "Rollout",
  "SurrogateLoss",
  "advantages",
  "aggregation",
  "algorithms",
  "correction",
  "entropy",
  "kl",
  "logprobs",
  "masking",
  "models",
  "preferences",
  "returns",
  "sampling",
  "shaping",
  "surrogates",
  "types",
  "values",
]
__version__ = "0.1.0"
