"""Log-probabilities and entropy from logits, shared by sampler and trainer.

The policy is `softmax(logits / temperature)`. Sampling and training both use these
functions, so their ratio measures the policy and never a forgotten temperature.
"""

import chex
import jax
import jax.numpy as jnp

from pgax.ops.precision import as_float
from pgax.types import Array


def log_softmax(logits: Array, temperature: float | Array = 1.0) -> Array:
  """Log-probabilities of the policy over the vocabulary.

  `log_softmax(logits / temperature)` in float32.

  Args:
    logits: `[..., V]` logits, any float dtype.
    temperature: positive scalar.

  Returns:
    `[..., V]` float32, nats.

  Example:
    >>> logits = jnp.log(jnp.array([1.0, 3.0]))
    >>> print(jnp.exp(logprobs.log_softmax(logits)))
    [0.25 0.75]
    >>> print(jnp.exp(logprobs.log_softmax(logits, temperature=0.5)))
    [0.1 0.9]
  """
  return jax.nn.log_softmax(as_float(logits) / temperature, axis=-1)


def token_logp(log_probs: Array, tokens: Array) -> Array:
  """Log-probability of each token.

  Args:
    log_probs: `[..., V]` log-probabilities, nats.
    tokens: `[...]` int, token ids in `[0, V)`.

  Returns:
    `[...]`, nats.

  Example:
    >>> log_probs = jnp.log(jnp.array([[0.2, 0.8], [0.5, 0.5]]))
    >>> print(jnp.exp(logprobs.token_logp(log_probs, jnp.array([1, 0]))))
    [0.8 0.5]
  """
  chex.assert_shape(tokens, log_probs.shape[:-1])
  return jnp.take_along_axis(log_probs, tokens[..., None], axis=-1)[..., 0]


def entropy(log_probs: Array) -> Array:
  """Shannon entropy of each distribution.

  `-sum_a p(a) log p(a)`; a token of probability 0 adds 0.

  Args:
    log_probs: `[..., V]` log-probabilities, nats.

  Returns:
    `[...]`, nats, between 0 and `log V`.

  Example:
    >>> print(logprobs.entropy(jnp.log(jnp.array([[0.5, 0.5], [0.25, 0.75]]))))
    [0.6931 0.5623]
  """
  finite = jnp.where(jnp.isneginf(log_probs), 0.0, log_probs)
  return -jnp.sum(jnp.exp(log_probs) * finite, axis=-1)
