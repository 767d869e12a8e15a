"""The formulas of policy-gradient learning: arrays in, arrays out."""

from pgax.ops import (
  advantages,
  aggregation,
  correction,
  entropy,
  evaluation,
  kl,
  logprobs,
  masking,
  preferences,
  returns,
  shaping,
  surrogates,
  values,
)

__all__ = [
  "advantages",
  "aggregation",
  "correction",
  "entropy",
  "evaluation",
  "kl",
  "logprobs",
  "masking",
  "preferences",
  "returns",
  "shaping",
  "surrogates",
  "values",
]
