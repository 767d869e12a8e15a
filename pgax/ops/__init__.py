"""Arrays in, arrays out: the formulas of policy-gradient learning."""

from pgax.ops import advantages, aggregation, kl, logprobs, masking, surrogates

__all__ = ["advantages", "aggregation", "kl", "logprobs", "masking", "surrogates"]
