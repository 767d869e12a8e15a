"""Metrics computed inside the train step, keyed by their log names."""

from collections.abc import Mapping

import jax.numpy as jnp

from pgax.algorithms import Algorithm, LossSums
from pgax.ops import correction, kl
from pgax.ops.masking import masked_mean
from pgax.types import Array, Batch


def mean_of_steps(x: Array, computed: Array | None) -> Array:
  """Averages a number over the optimizer steps of an update.

  Args:
    x: `[K]`, a number of each step, 0 for those that were not computed.
    computed: `[K]` bool, steps that were computed; None for all.

  Returns:
    A scalar.
  """
  return jnp.mean(x) if computed is None else jnp.sum(x) / jnp.sum(computed)


def update_metrics(
  algorithm: Algorithm,
  sums: LossSums,
  entropy: Array,
  tokens: Array,
  computed: Array | None = None,
) -> dict[str, Array]:
  """Computes metrics of the optimizer steps of an update.

  Args:
    algorithm: the algorithm.
    sums: `[K]`, sums of each of the `K` optimizer steps.
    entropy: `[K]` sums of token entropies, in nats.
    tokens: number of trained tokens in all of these steps.
    computed: see `mean_of_steps`.

  Returns:
    Scalars.
  """
  low, high, tokens = sums.clipped_low, sums.clipped_high, jnp.maximum(tokens, 1)
  metrics = {
    "loss/policy": mean_of_steps(sums.policy, computed),
    "loss/kl": mean_of_steps(sums.kl, computed),
    "entropy": jnp.sum(entropy) / tokens,
    "kl/old": jnp.sum(sums.kl_old) / tokens,
    "ratio/clip_fraction": jnp.sum(low + high) / tokens,
    "ratio/clip_low": jnp.sum(low) / tokens,
    "ratio/clip_high": jnp.sum(high) / tokens,
  }
  if algorithm.nll_loss is not None:
    metrics["loss/imitation"] = mean_of_steps(sums.nll, computed)
  if algorithm.entropy is not None:
    metrics["loss/entropy"] = mean_of_steps(sums.entropy, computed)
  if algorithm.critic is not None:
    metrics["value/loss"] = mean_of_steps(sums.value, computed)
  return metrics


def batch_metrics(algorithm: Algorithm, batch: Batch, old_logp: Array) -> dict[str, Array]:
  """Computes metrics of a training batch, before any optimizer step.

  Args:
    algorithm: the algorithm.
    batch: batch from `prepare`.
    old_logp: `[N, G, T]` trainer's log-probabilities before the update, in nats.

  Returns:
    Scalars. `ratio/first_step` is the mean ratio of the trainer's probability of a sampled
    token to the sampler's: 1 up to rounding if the two agree.
  """
  mask = batch.loss_mask
  log_ratio = old_logp - batch.rollout_logp
  metrics = {
    "advantage/mean_abs": masked_mean(jnp.abs(batch.advantages), mask),
    "advantage/std": standard_deviation(batch.advantages, mask),
    "ratio/first_step": jnp.where(
      jnp.any(mask), masked_mean(jnp.exp(log_ratio), mask), 1.0
    ),
    "ratio/sampler_error": masked_mean(jnp.abs(log_ratio), mask),
  }
  if batch.ref_logp is not None:
    metrics["kl/ref"] = masked_mean(kl.k3(old_logp, batch.ref_logp), mask)
  if algorithm.sampler_correction is not None:
    counted = mask if batch.surrogate_mask is None else batch.surrogate_mask
    metrics["correction/effective_sample_size"] = correction.effective_sample_size(
      batch.sampler_weights, counted
    )
  if algorithm.critic is not None:
    metrics |= {
      "value/mean": masked_mean(batch.old_values, mask),
      "value/explained_variance": explained_variance(batch.old_values, batch.targets, mask),
    }
  return metrics


def standard_deviation(x: Array, mask: Array) -> Array:
  """Computes the population's standard deviation of `[...]` values on a mask."""
  return jnp.sqrt(masked_mean(jnp.square(x - masked_mean(x, mask)), mask))


def per_completion(metrics: Mapping[str, Array], mask: Array) -> dict[str, Array]:
  """Turns divergences per token into divergences per completion.

  Args:
    metrics: metrics, some of them `kl/ref` and `kl/old`, means over tokens.
    mask: `[N, G, T]` bool, the trained tokens.

  Returns:
    `kl/ref_completion` and `kl/old_completion`, in nats, where there is the other.
  """
  completions = jnp.sum(jnp.any(mask, axis=-1))
  length = jnp.sum(mask) / jnp.maximum(completions, 1)
  names = [name for name in ("kl/ref", "kl/old") if name in metrics]
  return {f"{name}_completion": metrics[name] * length for name in names}


def explained_variance(values: Array, targets: Array, mask: Array) -> Array:
  """Computes the fraction of the targets' variance that the values explain.

  `1 - var(targets - values) / var(targets)`.

  Args:
    values: `[...]` outputs of the critic.
    targets: `[...]` targets of the critic.
    mask: `[...]` bool.

  Returns:
    A scalar: 1 is perfect, 0 is no better than a constant, below 0 is worse; 0 if the
    targets do not vary.
  """

  def variance(x: Array) -> Array:
    return masked_mean(jnp.square(x - masked_mean(x, mask)), mask)

  total, residual = variance(targets), variance(targets - values)
  return jnp.where(total > 0, 1 - residual / jnp.where(total > 0, total, 1.0), 0.0)
