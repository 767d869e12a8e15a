"""The formulas of policy-gradient learning: arrays in, arrays out.

Inputs in float64 stay float64, and everything else is computed in float32, as docstrings
say. Counts of a mask are exact in either; weights of `aggregation` have the precision of
the mask, so that a float64 mask gives float64 weights.
"""

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
