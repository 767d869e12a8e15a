"""Arrays in, arrays out: the formulas of policy-gradient learning."""

from pgax.ops import (
  advantages,
  aggregation,
  correction,
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
