"""Target matching: cross-entropy to a distribution over the completions of a group."""

import chex
import jax
import jax.numpy as jnp

from pgax.ops.masking import masked_sum, select
from pgax.ops.precision import as_float
from pgax.ops.surrogates.ratios import at_tokens, check_positive
from pgax.types import Array, SurrogateLoss

__all__ = ["tpo"]

_ABSENT = (
  -1e30
)  # log-probability of a completion without a token; finite, so that 0 * it is 0


def tpo(
  logp: Array, old_logp: Array, advantages: Array, mask: Array, eta: Array | float = 1.0
) -> SurrogateLoss:
  """TPO: cross-entropy of the policy over a group to a tilted old policy.

  With `p` the softmax of the completions' log-probabilities over their group, the loss of a
  group is `-sum_i q_i log p_i`, with the target `q = softmax(log p_old + u / eta)` as data.
  Its derivative by the log-probability of a completion is `p_i - q_i`, which vanishes at
  the target: the target limits the update, and several steps on a batch need no clip.
  Source: arXiv 2604.06159, where `u` is the reward, standardized within its group.

  Args:
    logp: `[..., G, T]` log-probabilities, nats.
    old_logp: `[..., G, T]` log-probabilities under the old policy, nats.
    advantages: `[..., G]` scores `u` of completions.
    mask: `[..., G, T]` bool or 0/1, the loss mask.
    eta: temperature of the target, in units of score per nat, positive; a number or a
      scalar array. Lower is sharper.

  Returns:
    `SurrogateLoss`: at each token of a completion its term of the group's loss, times the
    number of completions in the group, so that their mean is the group's loss; 0 where
    masked. `clipped` is false everywhere.

  Raises:
    ValueError: if `eta` is a number and not positive.

  Example:
    >>> logp, mask = jnp.log(jnp.array([[0.25], [0.25]])), jnp.ones((2, 1))
    >>> scores = jnp.array([1.0, -1.0])
    >>> slope = jax.grad(lambda x: surrogates.tpo(x, logp, scores, mask).loss.mean())
    >>> print(slope(logp).ravel())  # 0.5 less the target, softmax([1, -1])
    [-0.3808  0.3808]
  """
  check_positive("eta", eta)
  mask = jnp.asarray(mask, bool)
  chex.assert_shape(advantages, mask.shape[:-1])
  present = jnp.any(mask, axis=-1)
  scores = select(as_float(jax.lax.stop_gradient(advantages)), present)
  policy = _log_policy(logp, mask, present)
  old_policy = _log_policy(jax.lax.stop_gradient(old_logp), mask, present)
  target = jax.nn.softmax(jnp.where(present, old_policy + scores / eta, _ABSENT), axis=-1)
  count = jnp.sum(present, axis=-1, keepdims=True)
  loss = at_tokens(-count * target * policy, mask)
  return SurrogateLoss(loss, jnp.zeros(loss.shape, bool))


def _log_policy(logp: Array, mask: Array, present: Array) -> Array:
  """Log-probabilities of completions among those of their group, `[..., G]`."""
  total = masked_sum(select(as_float(logp), mask), mask, axis=-1)
  return jax.nn.log_softmax(jnp.where(present, total, _ABSENT), axis=-1)
