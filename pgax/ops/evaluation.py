"""Estimates of how good a policy is, from several completions of each of many problems."""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from pgax.types import Array


class Estimate(NamedTuple):
  """A mean, and the interval that it is known to.

  Attributes:
    mean: over problems.
    low: lower end of the interval.
    high: upper end of the interval.
  """

  mean: Array
  low: Array
  high: Array


def pass_at_k(right: Array, valid: Array, k: int) -> Array:
  """Unbiased estimate of the chance that one of `k` completions is right.

  `1 - C(n - c, k) / C(n, k)`, the fraction of all choices of `k` among `n` completions in
  which one at least of the `c` right ones is; computed as
  `1 - prod_{i = n - c + 1}^{n} (1 - k / i)`, which overflows nowhere. Source: Chen et al.
  2021, arXiv 2107.03374.

  Args:
    right: `[..., G]` bool, which completions of each problem are right.
    valid: `[..., G]` bool, false on completions that could not be scored: they are not
      among the `n`.
    k: number of completions, from 1 on.

  Returns:
    `[...]` float32, nan for a problem of fewer than `k` valid completions.

  Raises:
    ValueError: if `k` is below 1.
  """
  if k < 1:
    raise ValueError(f"k is {k}; it must be at least 1")
  right, valid = jnp.asarray(right, bool), jnp.asarray(valid, bool)
  chex.assert_equal_shape([right, valid])
  n = jnp.sum(valid, axis=-1, dtype=jnp.int32, keepdims=True)
  c = jnp.sum(right & valid, axis=-1, dtype=jnp.int32, keepdims=True)
  i = jnp.arange(1, right.shape[-1] + 1)
  # Where fewer than k are wrong, i = k is among the factors, and the product is 0.
  factors = jnp.where((i > n - c) & (i <= n), jnp.maximum(1 - k / i, 0), 1)
  missed = jnp.prod(factors.astype(jnp.float32), axis=-1)
  return jnp.where(n[..., 0] >= k, 1 - missed, jnp.nan)


def bootstrap(
  values: Array, key: Array, level: float = 0.95, resamples: int = 1000
) -> Estimate:
  """The mean over problems with its percentile bootstrap interval.

  Problems are drawn again, as many as there are and with replacement; the interval is
  between the quantiles `(1 - level) / 2` and `(1 + level) / 2` of the means of all such
  draws. Completions of one problem are not independent, so a problem comes with the mean
  of its completions or not at all. Source: Efron 1979. The interval is too short for few
  problems, and has no width where all values are equal.

  Args:
    values: `[..., P]` one value for each problem, of any number of quantities, all with
      the same draws; those that are not finite are left out.
    key: random key, of no other use.
    level: of confidence, above 0 and below 1.
    resamples: number of draws.

  Returns:
    An `Estimate` of `[...]` float32; nan where no value is finite.

  Raises:
    ValueError: if `level` or `resamples` is out of range.
  """
  if not 0 < level < 1:
    raise ValueError(f"level is {level}; it must be above 0 and below 1")
  if resamples < 1:
    raise ValueError(f"resamples is {resamples}; it must be at least 1")
  values = jnp.asarray(values, jnp.float32)
  chex.assert_rank(key, 0)
  if not values.shape[-1]:  # no problem is as one without a value
    values = jnp.full((*values.shape[:-1], 1), jnp.nan)
  size = values.shape[-1]
  kept = jnp.isfinite(values)
  count = jnp.sum(kept, axis=-1, keepdims=True, dtype=jnp.int32)
  # What is left out goes to the end. Means are taken of the distance to one of the values:
  # where all are equal, that is exactly 0.
  order = jnp.argsort(~kept, axis=-1)
  values = jnp.take_along_axis(values, order, axis=-1)
  origin, real = values[..., :1], jnp.arange(size) < count
  values = jnp.where(real, values - origin, 0)

  def mean(chosen: Array) -> Array:
    total = jnp.sum(jnp.where(real, chosen, 0), axis=-1)
    return origin[..., 0] + total / count[..., 0]  # 0 / 0 without values

  def resampled(key: Array) -> Array:
    drawn = jnp.floor(jax.random.uniform(key, (size,)) * count).astype(jnp.int32)
    drawn = jnp.clip(drawn, 0, jnp.maximum(count - 1, 0))  # the product may be rounded up
    return mean(jnp.take_along_axis(values, drawn, axis=-1))

  means = jax.lax.map(resampled, jax.random.split(key, resamples))
  ends = jnp.asarray([(1 - level) / 2, (1 + level) / 2])
  low, high = jnp.quantile(means, ends, axis=0)
  return Estimate(mean(values), low, high)
