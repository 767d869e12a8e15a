"""What a train step tells of itself, as scalars under the names they are logged by."""

import jax.numpy as jnp

from pgax.algorithms import Algorithm, LossSums
from pgax.ops import correction, kl
from pgax.ops.masking import masked_mean
from pgax.types import Array, Batch, Rollout


def update_metrics(
  algorithm: Algorithm, sums: LossSums, entropy: Array, tokens: Array
) -> dict[str, Array]:
  """Of the optimizer steps of an update.

  Args:
    algorithm: the algorithm.
    sums: `[K]` of each of `K` optimizer steps.
    entropy: `[K]` sum over tokens, nats.
    tokens: number of tokens that all the steps went over.

  Returns:
    Scalars.
  """
  low, high, tokens = sums.clipped_low, sums.clipped_high, jnp.maximum(tokens, 1)
  metrics = {
    "loss/policy": jnp.mean(sums.policy),
    "loss/kl": jnp.mean(sums.kl),
    "entropy": jnp.sum(entropy) / tokens,
    "kl/old": jnp.sum(sums.moved) / tokens,
    "ratio/clip_fraction": jnp.sum(low + high) / tokens,
    "ratio/clip_low": jnp.sum(low) / tokens,
    "ratio/clip_high": jnp.sum(high) / tokens,
  }
  if algorithm.imitation is not None:
    metrics["loss/imitation"] = jnp.mean(sums.imitation)
  if algorithm.critic is not None:
    metrics["value/loss"] = jnp.mean(sums.value)
  return metrics


def batch_metrics(algorithm: Algorithm, batch: Batch, rollout: Rollout) -> dict[str, Array]:
  """Of a training batch, before any optimizer step.

  Args:
    algorithm: the algorithm.
    batch: from `prepare`.
    rollout: what it was made from.

  Returns:
    Scalars. `ratio/first_step` is the mean ratio of the trainer's probability of a sampled
    token to the sampler's: 1 to rounding where the two agree.
  """
  log_ratio = batch.old_logp - rollout.logp
  metrics = {
    "advantage/mean_abs": masked_mean(jnp.abs(batch.advantages), batch.mask),
    "kl/ref": masked_mean(kl.k3(batch.old_logp, batch.ref_logp), batch.mask),
    "ratio/first_step": jnp.where(
      jnp.any(batch.mask), masked_mean(jnp.exp(log_ratio), batch.mask), 1.0
    ),
    "ratio/sampler_error": masked_mean(jnp.abs(log_ratio), batch.mask),
  }
  if algorithm.correction is not None:
    metrics["correction/effective_sample_size"] = correction.effective_sample_size(
      batch.correction, batch.mask
    )
  if algorithm.critic is not None:
    metrics |= {
      "value/mean": masked_mean(batch.old_values, batch.mask),
      "value/explained_variance": explained_variance(
        batch.old_values, batch.targets, batch.mask
      ),
    }
  return metrics


def explained_variance(values: Array, targets: Array, mask: Array) -> Array:
  """What part of the targets' variance the values tell: `1 - var(R - V) / var(R)`.

  Args:
    values: `[...]` of the critic.
    targets: `[...]` what it is to learn.
    mask: `[...]` bool.

  Returns:
    A scalar: 1 is perfect, 0 no better than a constant, below 0 worse; 0 where the targets
    do not vary.
  """

  def variance(x: Array) -> Array:
    return masked_mean(jnp.square(x - masked_mean(x, mask)), mask)

  whole, rest = variance(targets), variance(targets - values)
  return jnp.where(whole > 0, 1 - rest / jnp.where(whole > 0, whole, 1.0), 0.0)
