"""Estimates of a policy's accuracy from several completions per problem."""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from pgax.ops.precision import as_float
from pgax.types import Array


class Estimate(NamedTuple):
  """A mean and its confidence interval.

  Attributes:
    mean: mean over problems.
    low: lower end of the interval.
    high: upper end of the interval.
  """

  mean: Array
  low: Array
  high: Array


def pass_at_k(right: Array, valid: Array, k: int) -> Array:
  """pass@k: unbiased estimate of the chance that one of `k` completions is correct.

  `1 - C(n - c, k) / C(n, k)`: the fraction of all choices of `k` among `n` completions that
  contain at least one of the `c` correct ones. It is computed as
  `1 - prod_{i = n - c + 1}^{n} (1 - k / i)`, which cannot overflow. Source: Chen et al.
  2021, arXiv 2107.03374.

  Args:
    right: `[..., G]` bool, the completions that are correct.
    valid: `[..., G]` bool, false on completions that could not be scored, which `n` leaves
      out.
    k: number of completions, at least 1.

  Returns:
    `[...]` float32, nan for a problem with fewer than `k` valid completions.

  Raises:
    ValueError: if `k` is less than 1.

  Example:
    >>> right = jnp.array([True, False, False, False])
    >>> print([float(evaluation.pass_at_k(right, jnp.ones(4), k)) for k in (1, 2, 4)])
    [0.25, 0.5, 1.0]
  """
  if k < 1:
    raise ValueError(f"k is {k}; it must be at least 1")
  right, valid = jnp.asarray(right, bool), jnp.asarray(valid, bool)
  chex.assert_equal_shape([right, valid])
  n = jnp.sum(valid, axis=-1, dtype=jnp.int32, keepdims=True)
  c = jnp.sum(right & valid, axis=-1, dtype=jnp.int32, keepdims=True)
  i = jnp.arange(1, right.shape[-1] + 1)
  # Where fewer than k are wrong, i = k is among the factors and the product is 0.
  factors = jnp.where((i > n - c) & (i <= n), jnp.maximum(1 - k / i, 0), 1)
  missed = jnp.prod(factors.astype(jnp.float32), axis=-1)
  return jnp.where(n[..., 0] >= k, 1 - missed, jnp.nan)


def bootstrap(
  values: Array, key: Array, level: float = 0.95, resamples: int = 1000
) -> Estimate:
  """Mean over problems, with its percentile bootstrap interval.

  Problems are resampled with replacement; the interval lies between the quantiles
  `(1 - level) / 2` and `(1 + level) / 2` of the means of the resamples. Completions of one
  problem are not independent, so the unit is the problem, with the mean of its
  completions. With few problems the interval is too narrow; with equal values it has
  width 0. Source: Efron 1979.

  Args:
    values: `[..., P]` one value for each problem; values that are not finite are left out.
      All leading axes share the same resamples.
    key: random key.
    level: confidence level, above 0 and below 1.
    resamples: number of resamples, at least 1.

  Returns:
    An `Estimate` of `[...]` float32; nan where no value is finite.

  Raises:
    ValueError: if `level` or `resamples` is out of range.

  Example:
    >>> solved = jnp.array([0.5, 0.5, 0.5])
    >>> print(*evaluation.bootstrap(solved, jax.random.key(0)))
    0.5 0.5 0.5
  """
  if not 0 < level < 1:
    raise ValueError(f"level is {level}; it must be above 0 and below 1")
  if resamples < 1:
    raise ValueError(f"resamples is {resamples}; it must be at least 1")
  values = as_float(values)
  chex.assert_rank(key, 0)
  if not values.shape[-1]:  # no problem at all is treated like one without a value
    values = jnp.full((*values.shape[:-1], 1), jnp.nan)
  size = values.shape[-1]
  finite = jnp.isfinite(values)
  count = jnp.sum(finite, axis=-1, keepdims=True, dtype=jnp.int32)
  # Values that are not finite go to the end. Means are taken of the distance to one of the
  # values, which is exactly 0 where all are equal.
  order = jnp.argsort(~finite, axis=-1)
  values = jnp.take_along_axis(values, order, axis=-1)
  origin, is_value = values[..., :1], jnp.arange(size) < count
  values = jnp.where(is_value, values - origin, 0)

  def mean(chosen: Array) -> Array:
    total = jnp.sum(jnp.where(is_value, chosen, 0), axis=-1)
    return origin[..., 0] + total / count[..., 0]  # 0 / 0 without values

  def resampled(key: Array) -> Array:
    drawn = jnp.floor(jax.random.uniform(key, (size,)) * count).astype(jnp.int32)
    drawn = jnp.clip(drawn, 0, jnp.maximum(count - 1, 0))  # the product may round up
    return mean(jnp.take_along_axis(values, drawn, axis=-1))

  means = jax.lax.map(resampled, jax.random.split(key, resamples))
  ends = jnp.asarray([(1 - level) / 2, (1 + level) / 2])
  low, high = jnp.quantile(means, ends, axis=0)
  return Estimate(mean(values), low, high)
