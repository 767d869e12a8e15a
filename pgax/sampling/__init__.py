"""The sampler: a pure jitted function of parameters, prompts and a key."""

from pgax.sampling.decode import sample

__all__ = ["sample"]
