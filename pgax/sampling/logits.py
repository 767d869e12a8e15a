"""From logits to a token: temperature, and greedy as temperature 0."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from pgax.ops import logprobs
from pgax.types import Array


class Drawn(NamedTuple):
  """A token of every completion, and how likely it was.

  Attributes:
    token: `[...]` int32.
    logp: `[...]` float32, nats, under the policy `softmax(logits / temperature)`; under
      `softmax(logits)` when greedy, which has no policy of its own.
    sample_logp: `[...]` float32, nats, under the distribution drawn from; 0 when greedy.
  """

  token: Array
  logp: Array
  sample_logp: Array


def next_token(logits: Array, key: Array, temperature: Array | float) -> Drawn:
  """Draws a token from `softmax(logits / temperature)`.

  Args:
    logits: `[..., V]`.
    key: random key.
    temperature: a scalar, at least 0; at 0 the likeliest token is taken.

  Returns:
    `Drawn`.
  """
  temperature = jnp.asarray(temperature, jnp.float32)
  greedy = temperature == 0
  log_probs = logprobs.log_softmax(logits, jnp.where(greedy, 1.0, temperature))
  token = jnp.where(
    greedy, jnp.argmax(logits, axis=-1), jax.random.categorical(key, log_probs)
  ).astype(jnp.int32)
  logp = logprobs.token_logp(log_probs, token)
  return Drawn(token, logp, jnp.where(greedy, 0.0, logp))
