"""Returns and critic-based advantages: time is the last axis.

`mask` is 1 on real tokens. They come first in their sequence, padding after them; what the
padding holds never matters. Results are float32, and 0 on padding. `discount` and `lam` are
scalars, or one for each sequence: `[...]`, the shape of the rewards without the last axis.
A number outside of [0, 1] is a ValueError.
"""

import numbers

import chex
import jax
import jax.numpy as jnp

from pgax.ops.masking import select
from pgax.types import Array


def _checked(mask: Array, *arrays: Array) -> tuple[Array, ...]:
  mask = jnp.asarray(mask, bool)
  arrays = tuple(jnp.asarray(x, jnp.float32) for x in arrays)
  chex.assert_equal_shape([mask, *arrays])
  return mask, *(select(x, mask) for x in arrays)


def _per_sequence(x: Array | float, mask: Array) -> Array:
  """A scalar or a value for each sequence, as an array without the time axis."""
  x = jnp.asarray(x, jnp.float32)
  if x.ndim and x.shape != mask.shape[:-1]:
    raise ValueError(
      f"a setting has shape {x.shape}; allowed are a scalar and one value for each "
      f"sequence, {mask.shape[:-1]}"
    )
  return jnp.broadcast_to(x, mask.shape[:-1])


def _decay(name: str, x: Array | float, mask: Array) -> Array:
  """A discount or a trace; a number is checked, an array (it may be traced) is not."""
  if isinstance(x, numbers.Real) and not 0 <= x <= 1:
    raise ValueError(f"{name} is {x}; it must be in [0, 1]")
  return _per_sequence(x, mask)


def _accumulate(terms: Array, decay: Array) -> Array:
  """`y_t = x_t + decay * y_{t+1}` over the last axis, `decay` without it."""

  def step(later: Array, term: Array) -> tuple[Array, Array]:
    total = term + decay * later
    return total, total

  first = jnp.moveaxis(terms, -1, 0)
  _, totals = jax.lax.scan(step, jnp.zeros_like(first[0]), first, reverse=True)
  return jnp.moveaxis(totals, 0, -1)


def _next_values(values: Array, mask: Array, bootstrap: Array | float) -> Array:
  """`V_{t+1}`, which after the last real token is `bootstrap`; 0 on padding."""
  following = jnp.concatenate([mask[..., 1:], jnp.zeros_like(mask[..., :1])], axis=-1)
  shifted = jnp.concatenate([values[..., 1:], jnp.zeros_like(values[..., :1])], axis=-1)
  end = _per_sequence(bootstrap, mask)[..., None]
  return select(jnp.where(following, shifted, end), mask)


def discounted_returns(rewards: Array, mask: Array, discount: Array | float = 1.0) -> Array:
  """Reward to go.

  `G_t = r_t + discount * G_{t+1}`.

  Args:
    rewards: `[..., T]` token rewards.
    mask: `[..., T]` bool or 0/1.
    discount: scalar or `[...]`.

  Returns:
    `[..., T]` float32.
  """
  mask, rewards = _checked(mask, rewards)
  return select(_accumulate(rewards, _decay("discount", discount, mask)), mask)


def td_errors(
  rewards: Array,
  values: Array,
  mask: Array,
  discount: Array | float = 1.0,
  bootstrap: Array | float = 0.0,
) -> Array:
  """Temporal-difference residuals.

  `delta_t = r_t + discount * V_{t+1} - V_t`. Source: Sutton 1988.

  Args:
    rewards: `[..., T]` token rewards.
    values: `[..., T]` value estimates, in units of reward.
    mask: `[..., T]` bool or 0/1.
    discount: scalar or `[...]`.
    bootstrap: scalar or `[...]`, the value after the last real token; 0 where the
      completion has ended, an estimate where it was cut.

  Returns:
    `[..., T]` float32.
  """
  mask, rewards, values = _checked(mask, rewards, values)
  decay = _decay("discount", discount, mask)[..., None]
  return select(rewards + decay * _next_values(values, mask, bootstrap) - values, mask)


def n_step_advantages(
  rewards: Array,
  values: Array,
  mask: Array,
  n: int,
  discount: Array | float = 1.0,
  bootstrap: Array | float = 0.0,
) -> Array:
  """Advantages that look `n` rewards ahead.

  `A_t = sum_{k<n} discount**k r_{t+k} + discount**n V_{t+n} - V_t`, cut at the end of the
  sequence. `n = 1` is the TD residual, `n >= T` is `G_t - V_t`. It is the sum of `n`
  discounted TD residuals. Source: A3C, arXiv 1602.01783.

  Args:
    rewards: `[..., T]` token rewards.
    values: `[..., T]` value estimates, in units of reward.
    mask: `[..., T]` bool or 0/1.
    n: number of rewards, at least 1.
    discount: scalar or `[...]`.
    bootstrap: scalar or `[...]`, the value after the last real token.

  Returns:
    `[..., T]` float32.

  Raises:
    ValueError: if `n` is below 1.
  """
  if n < 1:
    raise ValueError(f"n is {n}; it must be at least 1")
  deltas = td_errors(rewards, values, mask, discount, bootstrap)
  mask = jnp.asarray(mask, bool)
  decay, total = _decay("discount", discount, mask)[..., None], deltas
  for k in range(1, min(n, deltas.shape[-1])):
    later = jnp.concatenate([deltas[..., k:], jnp.zeros_like(deltas[..., :k])], axis=-1)
    total = total + decay**k * later
  return select(total, mask)


def gae(
  rewards: Array,
  values: Array,
  mask: Array,
  discount: Array | float = 1.0,
  lam: Array | float = 0.95,
  bootstrap: Array | float = 0.0,
) -> Array:
  """Generalised advantage estimation.

  `A_t = delta_t + discount * lam * A_{t+1}`. `lam = 0` is the TD residual, of low variance
  and biased where the values are wrong; `lam = 1` is `G_t - V_t`, unbiased and of high
  variance. Source: arXiv 1506.02438.

  Args:
    rewards: `[..., T]` token rewards.
    values: `[..., T]` value estimates, in units of reward.
    mask: `[..., T]` bool or 0/1.
    discount: scalar or `[...]`.
    lam: the trace, scalar or `[...]`; see `length_adaptive_lambda`.
    bootstrap: scalar or `[...]`, the value after the last real token.

  Returns:
    `[..., T]` float32.
  """
  deltas = td_errors(rewards, values, mask, discount, bootstrap)
  mask = jnp.asarray(mask, bool)
  decay = _decay("discount", discount, mask) * _decay("lam", lam, mask)
  return select(_accumulate(deltas, decay), mask)


def lambda_returns(advantages: Array, values: Array, mask: Array) -> Array:
  """The target of the value function.

  `A_t + V_t`, with `A` from `gae` and before any whitening. Source: arXiv 1506.02438.

  Args:
    advantages: `[..., T]` from `gae`.
    values: `[..., T]`, those that `gae` was given.
    mask: `[..., T]` bool or 0/1.

  Returns:
    `[..., T]` float32.
  """
  mask, advantages, values = _checked(mask, advantages, values)
  return advantages + values


def length_adaptive_lambda(lengths: Array, alpha: float = 0.05) -> Array:
  """A trace that reaches further in longer sequences.

  `lam(l) = 1 - 1 / (alpha * l)`, kept within [0, 1]; below `1 / alpha` tokens it is 0.
  Source: VAPO, arXiv 2504.05118.

  Args:
    lengths: `[...]` lengths of the sequences, in tokens.
    alpha: how fast the trace grows with the length, positive.

  Returns:
    `[...]` float32.

  Raises:
    ValueError: if `alpha` is not positive.
  """
  if not alpha > 0:
    raise ValueError(f"alpha is {alpha}; it must be positive")
  lengths = jnp.maximum(jnp.asarray(lengths, jnp.float32), 1.0)
  return jnp.clip(1.0 - 1.0 / (alpha * lengths), 0.0, 1.0)
