"""Returns and critic-based advantages: time is the last axis.

`mask` is 1 on actions. Entries between two actions (the tokens of an environment's reply)
and after the last one (padding) are skipped: the successor of an action is the next action,
however far away; masked entries neither decay nor contribute, and may hold anything.
Results are float32, or float64 for inputs in float64, and 0 where masked. `discount` and
`lam` are scalars, or one value for each sequence: `[...]`, the shape of the rewards without
the last axis. A number outside of [0, 1] is a ValueError.
"""

import numbers

import chex
import jax
import jax.numpy as jnp

from pgax.ops.masking import select
from pgax.ops.precision import as_float, is_concrete
from pgax.types import Array


def _checked(mask: Array, *arrays: Array) -> tuple[Array, ...]:
  """The mask as bool, and the arrays as floats with masked entries at 0."""
  mask = jnp.asarray(mask, bool)
  arrays = tuple(as_float(x) for x in arrays)
  chex.assert_equal_shape([mask, *arrays])
  return mask, *(select(x, mask) for x in arrays)


def _per_sequence(x: Array | float, mask: Array) -> Array:
  """A scalar or a value for each sequence, as an array without the time axis."""
  x = as_float(x)
  if x.ndim and x.shape != mask.shape[:-1]:
    raise ValueError(
      f"a setting has shape {x.shape}; allowed are a scalar and one value for each "
      f"sequence, {mask.shape[:-1]}"
    )
  return jnp.broadcast_to(x, mask.shape[:-1])


def _decay(name: str, x: Array | float, mask: Array) -> Array:
  """A discount or lambda. Numbers are checked; arrays, which may be traced, are not."""
  if isinstance(x, numbers.Real) and not 0 <= x <= 1:
    raise ValueError(f"{name} is {x}; it must be in [0, 1]")
  return _per_sequence(x, mask)


def _accumulate(terms: Array, mask: Array, decay: Array) -> Array:
  """`y_t = x_t + decay * y_next` over the actions of the last axis; 0 where masked."""
  entries = tuple(jnp.moveaxis(x, -1, 0) for x in (terms, mask))
  start = jnp.zeros_like(entries[0][0]), decay
  _, totals = jax.lax.scan(_accumulate_step, start, entries, reverse=True)
  return select(jnp.moveaxis(totals, 0, -1), mask)


def _accumulate_step(
  carry: tuple[Array, Array], entry: tuple[Array, Array]
) -> tuple[tuple[Array, Array], Array]:
  # A function of the module: outside of a jit, a closure would be compiled at every call.
  (later, decay), (term, is_action) = carry, entry
  total = jnp.where(is_action, term + decay * later, later)
  return (total, decay), total


def _next_action(mask: Array) -> Array:
  """Index of the next action after each entry, `T` where there is none."""
  limit = mask.shape[-1]
  index = jnp.where(mask, jnp.arange(limit), limit)
  after = jnp.concatenate([index[..., 1:], jnp.full_like(index[..., :1], limit)], axis=-1)
  return jax.lax.cummin(after, axis=mask.ndim - 1, reverse=True)


def _next_values(values: Array, mask: Array, bootstrap: Array | float) -> Array:
  """The value of the next action, `bootstrap` after the last one; 0 where masked."""
  end = _per_sequence(bootstrap, mask)[..., None]
  values = jnp.concatenate([values, end], axis=-1)
  return select(jnp.take_along_axis(values, _next_action(mask), axis=-1), mask)


def discounted_returns(rewards: Array, mask: Array, discount: Array | float = 1.0) -> Array:
  """Reward to go.

  `G_t = r_t + discount * G_{t+1}`, where `t + 1` is the next action.

  Args:
    rewards: `[..., T]` token rewards.
    mask: `[..., T]` bool or 0/1, the actions.
    discount: discount of future rewards, a scalar or `[...]`.

  Returns:
    `[..., T]` float32.

  Example:
    >>> rewards, mask = jnp.array([0.0, 9.0, 1.0]), jnp.array([1, 0, 1])  # with a gap
    >>> print(returns.discounted_returns(rewards, mask, discount=0.5))
    [0.5 0.  1. ]
  """
  mask, rewards = _checked(mask, rewards)
  return _accumulate(rewards, mask, _decay("discount", discount, mask))


def total_return(rewards: Array, mask: Array, discount: Array | float = 1.0) -> Array:
  """The return of the whole sequence, the same at each of its tokens.

  `G = sum_t discount**t r_t`, with `t` the number of actions before. As a weight of the
  policy gradient it has the expectation of the reward to go, and more variance: rewards
  before an action do not depend on it. Source: Williams 1992.

  Args:
    rewards: `[..., T]` token rewards.
    mask: `[..., T]` bool or 0/1, the actions.
    discount: discount of future rewards, a scalar or `[...]`.

  Returns:
    `[..., T]` float32, 0 where masked.

  Example:
    >>> rewards, mask = jnp.array([1.0, 9.0, 1.0]), jnp.array([1, 0, 1])  # with a gap
    >>> print(returns.total_return(rewards, mask, discount=0.5))
    [1.5 0.  1.5]
  """
  to_go = discounted_returns(rewards, mask, discount)
  mask = jnp.asarray(mask, bool)
  first = jnp.argmax(mask, axis=-1)[..., None]  # 0 without actions, where `to_go` is 0
  total = jnp.take_along_axis(to_go, first, axis=-1)
  return select(jnp.broadcast_to(total, mask.shape), mask)


def td_errors(
  rewards: Array,
  values: Array,
  mask: Array,
  discount: Array | float = 1.0,
  bootstrap: Array | float = 0.0,
) -> Array:
  """Temporal-difference residuals.

  `delta_t = r_t + discount * V_{t+1} - V_t`, where `t + 1` is the next action. Source:
  Sutton 1988.

  Args:
    rewards: `[..., T]` token rewards.
    values: `[..., T]` value estimates, in units of reward.
    mask: `[..., T]` bool or 0/1, the actions.
    discount: discount of future rewards, a scalar or `[...]`.
    bootstrap: value after the last action, a scalar or `[...]`; 0 where the completion has
      ended, an estimate where it was truncated.

  Returns:
    `[..., T]` float32.

  Example:
    >>> rewards, values = jnp.array([0.0, 0.0, 1.0]), jnp.array([0.5, 0.2, 0.6])
    >>> print(returns.td_errors(rewards, values, jnp.ones(3)))
    [-0.3  0.4  0.4]
    >>> print(returns.td_errors(rewards, values, jnp.array([1, 0, 1])))  # skips the second
    [0.1 0.  0.4]
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

  `A_t = sum_{k<n} discount**k r_{t+k} + discount**n V_{t+n} - V_t`, where `t + k` is the
  k-th action after `t`, truncated at the last one. It is the sum of `n` discounted TD
  residuals: `n = 1` is the TD residual, `n >= T` is `G_t - V_t`. Source: A3C, arXiv
  1602.01783.

  Args:
    rewards: `[..., T]` token rewards.
    values: `[..., T]` value estimates, in units of reward.
    mask: `[..., T]` bool or 0/1, the actions.
    n: number of rewards, at least 1.
    discount: discount of future rewards, a scalar or `[...]`.
    bootstrap: value after the last action, a scalar or `[...]`.

  Returns:
    `[..., T]` float32.

  Raises:
    ValueError: if `n` is less than 1.

  Example:
    >>> rewards, values = jnp.array([0.0, 0.0, 1.0]), jnp.array([0.5, 0.2, 0.6])
    >>> print(returns.n_step_advantages(rewards, values, jnp.ones(3), n=2))
    [0.1 0.8 0.4]
  """
  if n < 1:
    raise ValueError(f"n is {n}; it must be at least 1")
  deltas = td_errors(rewards, values, mask, discount, bootstrap)
  mask = jnp.asarray(mask, bool)
  decay = _decay("discount", discount, mask)[..., None]
  # With the actions first, the k-th action after another one is k entries away.
  order = jnp.argsort(~mask, axis=-1, stable=True)
  total = deltas = jnp.take_along_axis(deltas, order, axis=-1)
  for k in range(1, min(n, deltas.shape[-1])):
    later = jnp.concatenate([deltas[..., k:], jnp.zeros_like(deltas[..., :k])], axis=-1)
    total = total + decay**k * later
  position = jnp.maximum(jnp.cumsum(mask, axis=-1) - 1, 0)
  return select(jnp.take_along_axis(total, position, axis=-1), mask)


def gae(
  rewards: Array,
  values: Array,
  mask: Array,
  discount: Array | float = 1.0,
  lam: Array | float = 0.95,
  bootstrap: Array | float = 0.0,
) -> Array:
  """Generalized advantage estimation.

  `A_t = delta_t + discount * lam * A_{t+1}`, where `t + 1` is the next action. `lam = 0` is
  the TD residual, which has low variance and is biased where the values are wrong; `lam =
  1` is `G_t - V_t`, unbiased and of high variance. Source: arXiv 1506.02438.

  Args:
    rewards: `[..., T]` token rewards.
    values: `[..., T]` value estimates, in units of reward.
    mask: `[..., T]` bool or 0/1, the actions.
    discount: discount of future rewards, a scalar or `[...]`.
    lam: lambda, a scalar or `[...]`; see `length_adaptive_lambda`.
    bootstrap: value after the last action, a scalar or `[...]`.

  Returns:
    `[..., T]` float32.

  Example:
    >>> rewards, values = jnp.array([0.0, 0.0, 1.0]), jnp.array([0.4, 0.2, 0.6])
    >>> print(returns.gae(rewards, values, jnp.ones(3), lam=0.5))
    [0.1 0.6 0.4]
    >>> print(returns.gae(rewards, values, jnp.ones(3), lam=1.0))  # return minus value
    [0.6 0.8 0.4]
  """
  deltas = td_errors(rewards, values, mask, discount, bootstrap)
  mask = jnp.asarray(mask, bool)
  decay = _decay("discount", discount, mask) * _decay("lam", lam, mask)
  return _accumulate(deltas, mask, decay)


def lambda_returns(advantages: Array, values: Array, mask: Array) -> Array:
  """Lambda-returns, the targets of the critic.

  `A_t + V_t`, with `A` from `gae` and before any whitening. Source: arXiv 1506.02438.

  Args:
    advantages: `[..., T]` advantages from `gae`.
    values: `[..., T]` the values passed to `gae`.
    mask: `[..., T]` bool or 0/1, the actions.

  Returns:
    `[..., T]` float32.

  Example:
    >>> advantage, values = jnp.array([0.5, 0.8, 0.4]), jnp.array([0.5, 0.2, 0.6])
    >>> print(returns.lambda_returns(advantage, values, jnp.ones(3)))
    [1. 1. 1.]
  """
  mask, advantages, values = _checked(mask, advantages, values)
  return advantages + values


def length_adaptive_lambda(lengths: Array, alpha: float = 0.05) -> Array:
  """A lambda that approaches 1 as the sequence gets longer.

  `lam(l) = 1 - 1 / (alpha * l)`, clipped to [0, 1]; 0 up to `1 / alpha` tokens. Source:
  VAPO, arXiv 2504.05118.

  Args:
    lengths: `[...]` lengths of the sequences, in tokens.
    alpha: rate at which lambda grows with the length, positive.

  Returns:
    `[...]` float32.

  Raises:
    ValueError: if `alpha` is not positive.

  Example:
    >>> print(returns.length_adaptive_lambda(jnp.array([10, 20, 40, 200])))
    [0.  0.  0.5 0.9]
  """
  if is_concrete(alpha) and not alpha > 0:
    raise ValueError(f"alpha is {alpha}; it must be positive")
  lengths = jnp.maximum(as_float(lengths), 1.0)
  return jnp.clip(1.0 - 1.0 / (alpha * lengths), 0.0, 1.0)
