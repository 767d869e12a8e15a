"""Aggregation is a weight for every token: loss = sum(weights * per_token_loss).

The weights depend on the mask alone and are computed once, for the whole global batch.
Splitting the batch over microbatches, devices or hosts then only splits a sum, and the
gradient cannot depend on the split. `mask` is the loss mask, which may have gaps. A
sequence without a token in it (one that a filter removed) does not count. A batch without a
token has weight 0 everywhere, so that its loss and gradient are 0, not nan.
"""

import jax.numpy as jnp

from pgax.ops.masking import lengths
from pgax.ops.precision import as_float, is_concrete
from pgax.types import Array


def _inverse(count: Array) -> Array:
  return jnp.where(count > 0, 1.0 / jnp.maximum(count, 1.0), 0.0)


def _num_sequences(mask: Array) -> Array:
  counts = lengths(mask)
  return jnp.sum(counts > 0, dtype=counts.dtype)


def sequence_mean(mask: Array) -> Array:
  """GRPO: mean over a sequence's tokens, then over sequences.

  `w = 1 / (|o_i| * number of sequences)`. Source: arXiv 2402.03300.

  Args:
    mask: `[..., T]` bool or 0/1; all leading axes together are the batch.

  Returns:
    `[..., T]` float32 weights, summing to 1 (to 0 for an empty mask).

  Example:
    >>> print(aggregation.sequence_mean(jnp.array([[1, 1, 1, 1], [1, 0, 0, 0]])))
    [[0.125 0.125 0.125 0.125]
     [0.5   0.    0.    0.   ]]
  """
  mask = as_float(mask)
  return mask * _inverse(lengths(mask))[..., None] * _inverse(_num_sequences(mask))


def token_mean(mask: Array) -> Array:
  """DAPO: mean over all tokens of the batch.

  `w = 1 / sum_i |o_i|`. Source: arXiv 2503.14476.

  Args:
    mask: `[..., T]` bool or 0/1; all leading axes together are the batch.

  Returns:
    `[..., T]` float32 weights, summing to 1 (to 0 for an empty mask).

  Example:
    >>> print(aggregation.token_mean(jnp.array([[1, 1, 1, 1], [1, 0, 0, 0]])))
    [[0.2 0.2 0.2 0.2]
     [0.2 0.  0.  0. ]]
  """
  mask = as_float(mask)
  return mask * _inverse(jnp.sum(mask))


def fixed_length(mask: Array, max_length: float, sequences: Array | None = None) -> Array:
  """Dr. GRPO: sum over a sequence's tokens over a constant, then mean over sequences.

  `w = 1 / (L_max * number of sequences)`. Source: arXiv 2503.20783; also the
  `masked_normalize` of Stanford's CS336, assignment 5.

  Args:
    mask: `[..., T]` bool or 0/1; all leading axes together are the batch.
    max_length: the constant `L_max`, in tokens; usually the sampler's token limit.
    sequences: scalar, number of sequences, for masks whose rows hold several or none; None
      for the number of rows with a token.

  Returns:
    `[..., T]` float32 weights.

  Raises:
    ValueError: if `max_length` is not positive.

  Example:
    >>> mask = jnp.array([[1, 1, 1, 1], [1, 0, 0, 0]])
    >>> print(aggregation.fixed_length(mask, max_length=10))
    [[0.05 0.05 0.05 0.05]
     [0.05 0.   0.   0.  ]]
  """
  if is_concrete(max_length) and not max_length > 0:
    raise ValueError(f"max_length is {max_length}; it must be a positive number of tokens")
  return sequence_sum(mask, sequences) / max_length


def sequence_sum(mask: Array, sequences: Array | None = None) -> Array:
  """REINFORCE: sum over a sequence's tokens, then mean over sequences.

  `w = 1 / number of sequences`, with which token log-probabilities sum to those of
  sequences. Source: arXiv 2402.14740.

  Args:
    mask: `[..., T]` bool or 0/1; all leading axes together are the batch.
    sequences: scalar, number of sequences; see `fixed_length`.

  Returns:
    `[..., T]` float32 weights.

  Example:
    >>> print(aggregation.sequence_sum(jnp.array([[1, 1, 1, 1], [1, 0, 0, 0]])))
    [[0.5 0.5 0.5 0.5]
     [0.5 0.  0.  0. ]]
  """
  mask = as_float(mask)
  count = _num_sequences(mask) if sequences is None else sequences
  return mask * _inverse(as_float(count))
