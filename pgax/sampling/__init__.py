"""The sampler: a jitted pure function of parameters, prompts, keys and options."""

from pgax.sampling.decode import prompt_keys, sample, sample_counted
from pgax.sampling.options import MAX_TEMPERATURE, MIN_TEMPERATURE, Options, logit_bias
from pgax.sampling.stopping import stop_table

__all__ = [
  "MAX_TEMPERATURE",
  "MIN_TEMPERATURE",
  "Options",
  "logit_bias",
  "prompt_keys",
  "sample",
  "sample_counted",
  "stop_table",
]
