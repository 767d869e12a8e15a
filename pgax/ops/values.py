"""Losses of the critic, per token and never reduced."""

import chex
import jax
import jax.numpy as jnp

from pgax.ops.precision import as_float, is_concrete
from pgax.types import Array


def value_loss(
  values: Array, old_values: Array, targets: Array, clip: float | None = 0.2
) -> Array:
  """PPO: squared error of the value, clipped to limit its change in one update.

  `1/2 max((V - R)**2, (clip(V, V_old - clip, V_old + clip) - R)**2)`. Only
  `values` is differentiated. Sources: arXiv 1707.06347, arXiv 2203.02155.

  Args:
    values: `[..., T]` value estimates, in units of reward.
    old_values: `[..., T]` value estimates before the update.
    targets: `[..., T]` returns, usually lambda-returns.
    clip: largest change of a value that the loss rewards; None for no limit.

  Returns:
    `[..., T]` float32.

  Raises:
    ValueError: if `clip` is negative.

  Example:
    >>> new, old, targets = jnp.array([[0.5, 0.9], [0.5, 0.5], [1.0, 1.0]])
    >>> print(values.value_loss(new, old, targets, clip=0.2))
    [0.125 0.045]
  """
  if clip is not None and is_concrete(clip) and clip < 0:
    raise ValueError(f"clip is {clip}; it must be at least 0, or None for no limit")
  chex.assert_equal_shape([values, old_values, targets])
  values = as_float(values)
  old_values, targets = (jax.lax.stop_gradient(as_float(x)) for x in (old_values, targets))
  loss = jnp.square(values - targets)
  if clip is not None:
    bounded = old_values + jnp.clip(values - old_values, -clip, clip)
    loss = jnp.maximum(loss, jnp.square(bounded - targets))
  return 0.5 * loss


def binary_value_loss(logits: Array, targets: Array) -> Array:
  """Cross-entropy of a sigmoid head, for returns in [0, 1].

  `-(R log sigmoid(x) + (1 - R) log(1 - sigmoid(x)))`, with `R` clipped to [0, 1], because
  the loss has no lower bound beyond. Only `logits` is differentiated.

  Args:
    logits: `[..., T]` outputs of the head; the value is their sigmoid.
    targets: `[..., T]` returns.

  Returns:
    `[..., T]` float32, nats.

  Example:
    >>> print(values.binary_value_loss(jnp.array([0.0, 2.0]), jnp.array([1.0, 1.0])))
    [0.6931 0.1269]
  """
  chex.assert_equal_shape([logits, targets])
  logits = as_float(logits)
  targets = jax.lax.stop_gradient(jnp.clip(as_float(targets), 0.0, 1.0))
  return -(
    targets * jax.nn.log_sigmoid(logits) + (1 - targets) * jax.nn.log_sigmoid(-logits)
  )
