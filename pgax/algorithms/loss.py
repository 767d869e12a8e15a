"""The loss: a weighted sum of per-token terms."""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from pgax.algorithms.spec import Algorithm
from pgax.ops import kl, surrogates
from pgax.ops.masking import masked_sum, select
from pgax.types import Array, Batch


class LossSums(NamedTuple):
  """Sums over the tokens of a batch, or of a part of one: parts add up.

  Attributes:
    policy: `sum(weights * correction * surrogate)`.
    kl: `sum(weights * estimator)` of a penalty in the loss, its coefficient left out.
    imitation: `sum(imitation * -logp)`, its coefficient included.
    value: `sum(weights * value loss)`, its coefficient left out.
    clipped_low: number of tokens at which the clip acts and whose own ratio is below 1.
    clipped_high: number of the others at which it acts.
    moved: sum over tokens of `k3(old_logp, logp)`: the divergence from the old policy.
  """

  policy: Array
  kl: Array
  imitation: Array
  value: Array
  clipped_low: Array
  clipped_high: Array
  moved: Array


def loss(
  algorithm: Algorithm,
  logp: Array,
  batch: Batch,
  kl_coef: Array | float = 0.0,
  outputs: Array | None = None,
) -> tuple[Array, LossSums]:
  """The loss of a batch or of a part of one; losses of parts add up to that of the whole.

  `sum(weights * (correction * surrogate + kl_coef * kl + coef * value))`, less
  `sum(imitation * logp)`; each term only where the algorithm has it.

  Args:
    algorithm: the algorithm.
    logp: `[N, G, T]` live log-probabilities, nats; padding may hold anything.
    batch: from `prepare`, or a part of it along axis 0.
    kl_coef: coefficient of the penalty in the loss.
    outputs: `[N, G, T]` live outputs of the critic's head; None without one.

  Returns:
    The scalar loss and its `LossSums`.

  Raises:
    ValueError: if the algorithm has a critic and `outputs` is None.
  """
  chex.assert_equal_shape([logp, batch.mask])
  logp = select(logp, batch.mask)
  surrogate = algorithm.surrogate(logp, batch)
  chex.assert_equal_shape([surrogate.loss, surrogate.clipped, logp])

  def weighted(terms: Array) -> Array:
    return masked_sum(batch.weights * terms, batch.mask)

  total = policy = weighted(batch.correction * surrogate.loss)
  divergence = imitation = value = jnp.float32(0)
  if algorithm.kl is not None and algorithm.kl.placement == "loss":
    penalty = algorithm.kl
    anchor = batch.ref_logp if penalty.anchor == "reference" else batch.old_logp
    estimate = penalty.estimator(logp, anchor)
    if penalty.corrected:
      estimate = surrogates.ratio(logp, batch.old_logp) * estimate
    divergence = weighted(estimate)
    total = total + kl_coef * divergence
  if algorithm.imitation is not None:
    imitation = masked_sum(-batch.imitation * logp, batch.mask)
    total = total + imitation
  if algorithm.critic is not None:
    if outputs is None:
      raise ValueError("outputs is None; the algorithm has a critic, give its outputs")
    chex.assert_equal_shape([outputs, logp])
    value = weighted(algorithm.critic.loss(select(outputs, batch.mask), batch))
    total = total + algorithm.critic.coef * value
  below = logp < batch.old_logp
  moved = kl.k3(batch.old_logp, jax.lax.stop_gradient(logp))
  return total, LossSums(
    policy,
    divergence,
    imitation,
    value,
    masked_sum(surrogate.clipped & below, batch.mask),
    masked_sum(surrogate.clipped & ~below, batch.mask),
    masked_sum(moved, batch.mask),
  )
