"""Weights that correct for a sampler whose probabilities differ from the trainer's.

An inference engine of another precision samples from a slightly different distribution
than the one that the trainer computes. Each function takes both log-probabilities of the
same tokens and returns a weight for the loss of every token. No gradient flows through it.
"""

import chex
import jax
import jax.numpy as jnp

from pgax.ops.kl import MAX_LOG_RATIO
from pgax.ops.masking import masked_sum, select
from pgax.ops.precision import as_float, is_concrete
from pgax.types import Array


def _ratio(old_logp: Array, sample_logp: Array) -> Array:
  chex.assert_equal_shape([old_logp, sample_logp])
  difference = as_float(old_logp) - as_float(sample_logp)
  ratio = jnp.exp(jnp.clip(difference, -MAX_LOG_RATIO, MAX_LOG_RATIO))
  return jax.lax.stop_gradient(ratio)


def truncated(old_logp: Array, sample_logp: Array, cap: float = 2.0) -> Array:
  """TIS: importance weights, truncated from above.

  `min(exp(old_logp - sample_logp), cap)`. Source: truncated importance sampling, Ionides
  2008.

  Args:
    old_logp: `[..., T]` the trainer's log-probabilities before the update, nats.
    sample_logp: `[..., T]` the sampler's log-probabilities, nats.
    cap: the largest weight, positive.

  Returns:
    `[..., T]` float32.

  Raises:
    ValueError: if `cap` is not positive.

  Example:
    >>> old, rollout = jnp.log(jnp.array([[0.5, 0.6], [0.4, 0.2]]))
    >>> print(correction.truncated(old, rollout, cap=2.0))
    [1.25 2.  ]
  """
  if is_concrete(cap) and not cap > 0:
    raise ValueError(f"cap is {cap}; it must be positive")
  return jnp.minimum(_ratio(old_logp, sample_logp), cap)


def icepop(
  old_logp: Array, sample_logp: Array, low: float = 0.5, high: float = 5.0
) -> Array:
  """IcePop: importance weights, 0 out of bounds.

  `exp(old_logp - sample_logp)` within `[low, high]`, and 0 outside. Source: IcePop,
  2025.

  Args:
    old_logp: `[..., T]` the trainer's log-probabilities before the update, nats.
    sample_logp: `[..., T]` the sampler's log-probabilities, nats.
    low: the smallest weight that is not set to 0, at least 0.
    high: the largest weight that is not set to 0, at least `low`.

  Returns:
    `[..., T]` float32.

  Raises:
    ValueError: unless `0 <= low <= high`.

  Example:
    >>> old, rollout = jnp.log(jnp.array([[0.5, 0.6], [0.4, 0.1]]))
    >>> print(correction.icepop(old, rollout, low=0.5, high=5.0))
    [1.25 0.  ]
  """
  if is_concrete(low, high) and not 0 <= low <= high:
    raise ValueError(f"low is {low} and high is {high}; allowed are 0 <= low <= high")
  ratio = _ratio(old_logp, sample_logp)
  return jnp.where((ratio >= low) & (ratio <= high), ratio, 0.0)


def sequence(old_logp: Array, sample_logp: Array, mask: Array, cap: float = 2.0) -> Array:
  """TIS with one importance weight for all tokens of a sequence.

  `min(exp(sum_t (old_logp - sample_logp)), cap)`, the ratio of the sequences'
  probabilities.

  Args:
    old_logp: `[..., T]` the trainer's log-probabilities before the update, nats.
    sample_logp: `[..., T]` the sampler's log-probabilities, nats.
    mask: `[..., T]` bool or 0/1.
    cap: the largest weight, positive.

  Returns:
    `[..., T]` float32.

  Raises:
    ValueError: if `cap` is not positive.

  Example:
    >>> old, rollout = jnp.log(jnp.array([[0.6, 0.5], [0.5, 0.4]]))
    >>> print(correction.sequence(old, rollout, jnp.array([1, 1])))
    [1.5 1.5]
  """
  old_logp, sample_logp = select(old_logp, mask), select(sample_logp, mask)
  total = masked_sum(old_logp - sample_logp, mask, axis=-1)[..., None]
  total = jnp.broadcast_to(total, mask.shape)
  return truncated(total, jnp.zeros_like(total), cap)


def effective_sample_size(weights: Array, mask: Array) -> Array:
  """Effective sample size of token weights, as a fraction of the number of tokens.

  `(sum w)**2 / (n * sum w**2)`. Source: Kong 1992.

  Args:
    weights: `[...]` weights, at least 0.
    mask: `[...]` bool or 0/1, the shape of `weights`.

  Returns:
    Float32 scalar between 0 and 1; 1 for equal weights, 0 for none.

  Example:
    >>> weights = jnp.array([1.0, 1.0, 0.0, 0.0])
    >>> print(correction.effective_sample_size(weights, jnp.ones(4)))
    0.5
  """
  count = jnp.sum(as_float(mask))
  square = masked_sum(jnp.square(weights), mask) * count
  return jnp.where(
    square > 0, masked_sum(weights, mask) ** 2 / jnp.maximum(square, 1e-30), 0.0
  )
