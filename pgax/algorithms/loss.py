"""The loss: a weighted sum of per-token terms."""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from pgax.algorithms.spec import Algorithm, CriticSpec, KLPenalty
from pgax.ops import kl, surrogates
from pgax.ops.masking import masked_sum, select
from pgax.types import Array, Batch


class LossSums(NamedTuple):
  """Sums over the tokens of a batch, or of a part of one; the sums of parts add up.

  Attributes:
    policy: `sum(weights * sampler_weights * surrogate)`.
    kl: `sum(weights * estimator)` of a KL penalty in the loss, without its coefficient.
    nll: `sum(nll_weights * -logp)`, its coefficient included.
    value: `sum(weights * value loss)`, without its coefficient.
    entropy: `sum(weights * entropy)` of an entropy bonus, without its coefficient.
    clipped_low: number of tokens at which the clip acts and whose own ratio is below 1.
    clipped_high: number of all other tokens at which the clip acts.
    kl_old: sum over tokens of `k3(old_logp, logp)`, the divergence from the old policy.
  """

  policy: Array
  kl: Array
  nll: Array
  value: Array
  entropy: Array
  clipped_low: Array
  clipped_high: Array
  kl_old: Array


def _divergence(penalty: KLPenalty, logp: Array, batch: Batch) -> Array:
  """The penalty's estimate of the divergence from its anchor, per token."""
  anchor = batch.ref_logp if penalty.anchor == "reference" else batch.old_logp
  estimate = penalty.estimator(logp, anchor)
  if penalty.importance_weighted:
    estimate = surrogates.ratio(logp, batch.old_logp) * estimate
  return estimate


def _value_loss(critic: CriticSpec, outputs: Array | None, batch: Batch) -> Array:
  """The critic's loss, per token."""
  if outputs is None:
    raise ValueError("outputs is None; the algorithm has a critic and needs its outputs")
  return critic.loss(select(outputs, batch.loss_mask), batch)


def loss(
  algorithm: Algorithm,
  logp: Array,
  batch: Batch,
  kl_coef: Array | float = 0.0,
  outputs: Array | None = None,
  entropy: Array | None = None,
  entropy_coef: Array | float = 0.0,
) -> tuple[Array, LossSums]:
  """Computes the loss of a batch or of a part of one; losses of parts add up.

  `sum(weights * (sampler_weights * surrogate + kl_coef * kl + coef * value - entropy_coef *
  entropy))` minus `sum(nll_weights * logp)`; each term only where the algorithm has it.
  `logp`, `outputs` and `entropy` are differentiated, the batch is data. Without
  `batch.old_logp` the policy is its own old policy: the ratio is 1, and has a gradient.

  Args:
    algorithm: the algorithm.
    logp: `[N, G, T]` log-probabilities under the policy, nats; ignored where masked.
    batch: a batch from `prepare`, or a part of it along axis 0.
    kl_coef: coefficient of a KL penalty in the loss.
    outputs: `[N, G, T]` outputs of the critic's head; None without a critic.
    entropy: `[N, G, T]` entropies of the policy, nats; None without an entropy bonus.
    entropy_coef: coefficient of the entropy bonus.

  Returns:
    The scalar loss and its `LossSums`.

  Raises:
    ValueError: if the algorithm has a critic and `outputs` is None, or an entropy bonus and
      `entropy` is None.
  """
  mask = batch.loss_mask
  logp = select(logp, mask)
  if batch.old_logp is None:
    batch = batch.replace(old_logp=jax.lax.stop_gradient(logp))
  surrogate = algorithm.surrogate(logp, batch)
  chex.assert_equal_shape([surrogate.loss, surrogate.clipped, logp])

  def weighted(terms: Array) -> Array:
    return masked_sum(batch.weights * terms, mask)

  total = policy = weighted(batch.sampler_weights * surrogate.loss)
  divergence = nll = value = bonus = jnp.float32(0)
  if algorithm.kl is not None and algorithm.kl.placement == "loss":
    divergence = weighted(_divergence(algorithm.kl, logp, batch))
    total = total + kl_coef * divergence
  if algorithm.nll_loss is not None:
    nll = masked_sum(-batch.nll_weights * logp, mask)
    total = total + nll
  if algorithm.critic is not None:
    value = weighted(_value_loss(algorithm.critic, outputs, batch))
    total = total + algorithm.critic.coef * value
  if algorithm.entropy is not None:
    if entropy is None:
      raise ValueError("entropy is None; the algorithm has an entropy bonus and needs it")
    bonus = weighted(entropy)
    total = total - entropy_coef * bonus
  below = logp < batch.old_logp
  kl_old = kl.k3(batch.old_logp, jax.lax.stop_gradient(logp))
  return total, LossSums(
    policy,
    divergence,
    nll,
    value,
    bonus,
    masked_sum(surrogate.clipped & below, mask),
    masked_sum(surrogate.clipped & ~below, mask),
    masked_sum(kl_old, mask),
  )
