"""The memory of a forward and backward pass is linear in the length."""

import dataclasses

import jax
import jax.numpy as jnp

from pgax.learner.forward import completion_logp
from pgax.models import Decoder
from tests.arrays import rollout
from tests.tiny import CONFIG, params


def temporaries(config, length):
  """Bytes of temporary arrays of the gradient of all log-probabilities."""
  model = Decoder(config)
  given = rollout(n=1, group=2, length=length)

  def loss(params, given):
    return jnp.sum(completion_logp(model, params, given)[0])

  lowered = jax.jit(jax.grad(loss)).lower(params(), given)
  return lowered.compile().memory_analysis().temp_size_in_bytes


def test_linear_in_the_length():
  config = dataclasses.replace(CONFIG, sliding_window=64, attention_softcap=5.0, remat=True)
  short, long = (temporaries(config, length) for length in (512, 8192))
  assert long < 20 * short  # 16 times as long; all scores are 256 times as many
  everything = dataclasses.replace(config, attention="einsum")
  assert temporaries(everything, 4096) > 2 * long
