"""Advantages normalized over the batch, and baselines that span batches."""

import math

import chex
import jax.numpy as jnp

from pgax.ops.advantages.centering import center, check_normalization, check_rewards
from pgax.ops.advantages.group import grpo
from pgax.ops.advantages.tokens import at_last_token
from pgax.ops.masking import masked_mean, select
from pgax.ops.precision import as_float, is_concrete
from pgax.ops.returns import discounted_returns
from pgax.types import Array

_CANCELED = 1e-4  # sums of normalized rewards below this are 0

__all__ = ["batch_mean", "batch_scaled", "gdpo", "moving_average", "reinforce_pp", "whiten"]


def batch_mean(rewards: Array, valid: Array | None = None) -> Array:
  """REINFORCE with the mean of the batch as its baseline.

  `A = R - mean(R)`, the mean over every axis. Source: Williams 1992.

  Args:
    rewards: `[..., G]` rewards.
    valid: `[..., G]` bool, completions that could be scored; None for all.

  Returns:
    `[..., G]` float32 advantages.

  Example:
    >>> print(advantages.batch_mean(jnp.array([[1.0, 0.0], [0.0, 1.0]])))
    [[ 0.5 -0.5]
     [-0.5  0.5]]
  """
  rewards, valid = check_rewards(rewards, valid)
  return center(rewards.ravel(), valid.ravel()).reshape(rewards.shape)


def batch_scaled(
  rewards: Array, valid: Array | None = None, ddof: int = 0, eps: float = 1e-6
) -> Array:
  """GRPO with one scale for the batch: rewards minus the mean of their group.

  `A = (R - mean R) / (std(batch) + eps)`, with the deviation of all rewards of the batch.
  A group that is almost all right, or all wrong, then weighs no more than others. Sources:
  arXiv 2508.08221 ("Lite PPO"); TRL's `scale_rewards="batch"`.

  Args:
    rewards: `[..., G]` rewards.
    valid: `[..., G]` bool, completions that could be scored; None for all.
    ddof: 0 divides the variance by the number of rewards, 1 by that number minus 1.
    eps: constant added to the standard deviation, in units of reward.

  Returns:
    `[..., G]` float32 advantages.

  Raises:
    ValueError: if `ddof` is not 0 or 1, or `eps` is negative.

  Example:
    >>> print(advantages.batch_scaled(jnp.array([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]])))
    [[ 1. -1.]
     [ 0.  0.]
     [ 0.  0.]]
  """
  check_normalization(ddof, eps)
  rewards, valid = check_rewards(rewards, valid)
  deviation = center(rewards.ravel(), valid.ravel())
  count = jnp.sum(valid, dtype=jnp.float32)
  variance = jnp.sum(deviation**2) / jnp.maximum(count - ddof, 1.0)
  signal = variance > 0
  std = jnp.sqrt(jnp.where(signal, variance, 1.0))
  return jnp.where(signal, center(rewards, valid) / (std + eps), 0.0)


def gdpo(
  components: Array,
  valid: Array | None = None,
  weights: tuple[float, ...] = (),
  eps: float = 1e-6,
) -> Array:
  """GDPO: every component of the reward is normalized in its group before they are added.

  `A = whiten(sum_k w_k (R_k - mean R_k) / (std R_k + eps))`. Completions that differ in
  which component they get, and not in their sum, have different advantages, and a component
  on a larger scale does not outweigh others. Source: arXiv 2601.05242.

  Args:
    components: `[..., G, K]` components of the rewards.
    valid: `[..., G]` bool, completions that could be scored; None for all.
    weights: weight `w_k` of each component; empty for equal weights of 1.
    eps: constant added to standard deviations.

  Returns:
    `[..., G]` float32 advantages, whitened over the batch.

  Raises:
    ValueError: if there is not one finite weight for each component.

  Example:
    >>> components = jnp.array([[[1.0, 0.0], [0.0, 10.0], [0.0, 0.0]]])
    >>> print(advantages.gdpo(components))
    [[ 0.7071  0.7071 -1.4142]]
  """
  count = components.shape[-1]
  weights = weights or (1.0,) * count
  if len(weights) != count or not all(map(math.isfinite, weights)):
    raise ValueError(
      f"weights is {weights}; there are {count} components, and each needs a finite weight"
    )
  terms = [
    weight * grpo(components[..., k], valid, eps=eps) for k, weight in enumerate(weights)
  ]
  total = sum(terms)
  # Components that cancel each other leave rounding errors and traces of `eps`, which
  # whitening would turn into advantages of size 1.
  smallest = _CANCELED * sum(map(abs, weights))
  total = jnp.where(jnp.abs(total) > smallest, total, 0.0)
  return whiten(total, jnp.ones(total.shape, bool) if valid is None else valid)


def moving_average(
  rewards: Array, baseline: Array, rate: float, valid: Array | None = None
) -> tuple[Array, Array]:
  """REINFORCE with a moving average of the reward as its baseline.

  `A = R - b`, and then `b <- (1 - rate) * b + rate * mean(R)`. The caller keeps `b`.
  Source: Williams 1992, reinforcement comparison.

  Args:
    rewards: `[..., G]` rewards.
    baseline: float32 scalar, the average before this batch.
    rate: weight of this batch, in [0, 1].
    valid: `[..., G]` bool, completions that could be scored; None for all.

  Returns:
    `[..., G]` float32 advantages, and the next baseline, which a batch without a valid
    reward leaves unchanged.

  Raises:
    ValueError: if `rate` is not in [0, 1].

  Example:
    >>> rewards = jnp.array([1.0, 0.0])
    >>> print(*advantages.moving_average(rewards, 0.25, rate=0.5))
    [ 0.75 -0.25] 0.375
  """
  if is_concrete(rate) and not 0 <= rate <= 1:
    raise ValueError(f"rate is {rate}; it must be in [0, 1]")
  rewards, valid = check_rewards(rewards, valid)
  updated = (1 - rate) * baseline + rate * masked_mean(rewards, valid)
  return select(rewards - baseline, valid), jnp.where(jnp.any(valid), updated, baseline)


def whiten(
  x: Array, mask: Array, shift_mean: bool = True, ddof: int = 0, eps: float = 1e-8
) -> Array:
  """Normalizes values over the whole batch.

  `(x - mean) / (std + eps)` over the unmasked entries of all axes. With `shift_mean=False`
  the mean is added back, and only the scale changes. Source: arXiv 2203.02155.

  Args:
    x: `[...]` values, such as token advantages.
    mask: `[...]` bool or 0/1, the shape of `x`.
    shift_mean: whether the result has mean 0.
    ddof: 0 divides the variance by the number of entries, 1 by that number minus 1.
    eps: constant added to the standard deviation.

  Returns:
    `[...]` float32, 0 where masked. Equal values become 0, or their mean with
    `shift_mean=False`.

  Raises:
    ValueError: if `ddof` is not 0 or 1, or `eps` is negative.

  Example:
    >>> print(advantages.whiten(jnp.array([1.0, 3.0, 9.0]), jnp.array([1, 1, 0])))
    [-1.  1.  0.]
  """
  x, mask = check_rewards(x, mask)
  flat, flat_mask = x.ravel(), mask.ravel()
  scaled = grpo(flat, flat_mask, ddof, eps)
  if not shift_mean:
    # (x - mean) / std + mean, computed from the normalized values.
    scaled = scaled + masked_mean(flat, flat_mask)
  return select(scaled, flat_mask).reshape(x.shape)


def reinforce_pp(
  rewards: Array,
  token_kl: Array,
  mask: Array,
  valid: Array | None = None,
  kl_coef: Array | float = 0.0,
  group_baseline: bool = False,
  discount: float = 1.0,
) -> Array:
  """REINFORCE++: token KL in the reward, return to go, whitened over the global batch.

  `r_t = -kl_coef * k1_t`, plus the completion's reward at its last action; `A = whiten(G)`
  with `G` the return to go. The baseline variant subtracts the group's mean from the reward
  first. Source: arXiv 2501.03262.

  Args:
    rewards: `[..., G]` rewards of completions.
    token_kl: `[..., G, T]` k1 of every action, nats.
    mask: `[..., G, T]` bool or 0/1, the actions.
    valid: `[..., G]` bool, completions that could be scored; None for all.
    kl_coef: coefficient of the penalty, in units of reward per nat.
    group_baseline: whether to subtract the mean of the group first.
    discount: discount of future rewards.

  Returns:
    `[..., G, T]` float32 advantages, 0 where masked or not valid.

  Example:
    >>> mask = jnp.array([[1, 1], [1, 0]])
    >>> print(advantages.reinforce_pp(jnp.array([1.0, 0.0]), jnp.zeros((2, 2)), mask))
    [[ 0.7071  0.7071]
     [-1.4142  0.    ]]
  """
  rewards, valid = check_rewards(rewards, valid)
  if group_baseline:
    rewards = center(rewards, valid)
  mask = jnp.asarray(mask, bool) & valid[..., None]
  chex.assert_equal_shape([token_kl, mask])
  token_rewards = -kl_coef * select(as_float(token_kl), mask)
  token_rewards = token_rewards + at_last_token(rewards, mask)
  return whiten(discounted_returns(token_rewards, mask, discount), mask)
