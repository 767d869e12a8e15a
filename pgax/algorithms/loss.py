"""The loss: a weighted sum of per-token terms."""

from typing import NamedTuple

import chex
import jax.numpy as jnp

from pgax.algorithms.spec import Algorithm
from pgax.ops.masking import masked_sum, select
from pgax.types import Array, Batch


class LossSums(NamedTuple):
  """Sums over the tokens of a batch, or of a part of one: parts add up.

  Attributes:
    policy: `sum(weights * surrogate)`.
    kl: `sum(weights * estimator)` of a penalty in the loss, its coefficient left out.
    clipped: number of tokens at which the clip acts.
  """

  policy: Array
  kl: Array
  clipped: Array


def loss(
  algorithm: Algorithm, logp: Array, batch: Batch, kl_coef: Array | float = 0.0
) -> tuple[Array, LossSums]:
  """The loss of a batch or of a part of one; losses of parts add up to that of the whole.

  `sum(weights * (surrogate + kl_coef * kl))`, the second term only where the algorithm
  puts its penalty in the loss.

  Args:
    algorithm: the algorithm.
    logp: `[N, G, T]` live log-probabilities, nats; padding may hold anything.
    batch: from `prepare`, or a part of it along axis 0.
    kl_coef: coefficient of the penalty in the loss.

  Returns:
    The scalar loss and its `LossSums`.
  """
  chex.assert_equal_shape([logp, batch.mask])
  logp = select(logp, batch.mask)
  surrogate = algorithm.surrogate(logp, batch)
  chex.assert_equal_shape([surrogate.loss, surrogate.clipped, logp])
  policy = masked_sum(batch.weights * surrogate.loss, batch.mask)
  total, kl = policy, jnp.float32(0)
  if algorithm.kl is not None and algorithm.kl.placement == "loss":
    estimate = algorithm.kl.estimator(logp, batch.ref_logp)
    kl = masked_sum(batch.weights * estimate, batch.mask)
    total = policy + kl_coef * kl
  return total, LossSums(policy, kl, masked_sum(surrogate.clipped, batch.mask))
