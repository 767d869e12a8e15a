"""Losses of preference pairs, per pair and never reduced."""

import chex
import jax

from pgax.ops.precision import as_float
from pgax.types import Array


def bradley_terry(chosen: Array, rejected: Array) -> Array:
  """Negative log-likelihood of a preference: `-log sigmoid(r_chosen - r_rejected)`.

  Source: Bradley and Terry, 1952; as the loss of a reward model in arXiv 2203.02155.

  Args:
    chosen: `[...]` scores of the preferred completions.
    rejected: `[...]` scores of the rejected completions.

  Returns:
    `[...]` float32, nats.

  Example:
    >>> print(preferences.bradley_terry(jnp.array([0.0, 2.0]), jnp.array([0.0, 1.0])))
    [0.6931 0.3133]
  """
  chex.assert_equal_shape([chosen, rejected])
  chosen, rejected = (as_float(x) for x in (chosen, rejected))
  return -jax.nn.log_sigmoid(chosen - rejected)
