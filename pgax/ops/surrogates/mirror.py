"""Mirror descent: several steps on a batch, with a penalty for leaving the old policy."""

import chex
import jax
import jax.numpy as jnp

from pgax.ops.kl import k3_importance_weighted
from pgax.ops.masking import select
from pgax.ops.precision import as_float
from pgax.ops.surrogates.ratios import at_tokens, check_positive, sequence_log_ratio
from pgax.ops.surrogates.token import unclipped
from pgax.types import Array, SurrogateLoss

__all__ = ["mdpo", "mdpo_kimi"]


def mdpo(
  logp: Array, old_logp: Array, advantages: Array, step_size: Array | float
) -> SurrogateLoss:
  """MDPO: the unclipped surrogate plus the divergence from the old policy.

  `-A * ratio + (1 / step_size) * ratio * k3(logp, old_logp)`. The second term is an
  unbiased estimate of KL(policy || old policy) under samples of the old policy. It is never
  negative, and at ratio 1 it and its gradient are 0. Source: arXiv 2005.09814, which
  anneals the step size.

  Args:
    logp: `[..., T]` log-probabilities, nats.
    old_logp: `[..., T]` log-probabilities under the old policy, nats.
    advantages: `[..., T]` advantages, in units of reward.
    step_size: step size, in nats per unit of reward, positive; a number or a scalar array.

  Returns:
    `SurrogateLoss`, with `clipped` false everywhere.

  Raises:
    ValueError: if `step_size` is a number and not positive.

  Example:
    >>> logp, old_logp = jnp.log(jnp.array([[0.4, 0.2], [0.2, 0.2]]))
    >>> print(surrogates.mdpo(logp, old_logp, jnp.ones(2), step_size=1.0).loss)
    [-1.6137 -1.    ]
  """
  check_positive("step_size", step_size)
  surrogate = unclipped(logp, old_logp, advantages)
  divergence = k3_importance_weighted(logp, jax.lax.stop_gradient(old_logp), old_logp)
  return SurrogateLoss(surrogate.loss + divergence / step_size, surrogate.clipped)


def mdpo_kimi(
  logp: Array, old_logp: Array, advantages: Array, mask: Array, tau: Array | float
) -> SurrogateLoss:
  """Kimi k1.5: squared distance of a completion from the mirror-descent optimum.

  `(A - tau * sum_t (logp - old_logp))**2 / (2 tau)`. The division by `2 tau`, which
  the source does not have, makes its gradient at ratio 1 the policy gradient's. Source:
  arXiv 2501.12599, section 2.3.2, where `A = R - mean R` of the group.

  Args:
    logp: `[..., G, T]` log-probabilities, nats.
    old_logp: `[..., G, T]` log-probabilities under the old policy, nats.
    advantages: `[..., G]` advantages of completions, in units of reward.
    mask: `[..., G, T]` bool or 0/1, the loss mask.
    tau: weight of the log-ratio, in units of reward per nat, positive; a number or a scalar
      array.

  Returns:
    `SurrogateLoss`: a completion's loss at each of its tokens, 0 where masked, with
    `clipped` false everywhere.

  Raises:
    ValueError: if `tau` is a number and not positive.

  Example:
    >>> logp, old_logp = jnp.array([-1.0, -1.0]), jnp.array([-2.0, -2.0])
    >>> print(surrogates.mdpo_kimi(logp, old_logp, jnp.array(1.0), jnp.ones(2), 0.25).loss)
    [0.5 0.5]
  """
  check_positive("tau", tau)
  mask = jnp.asarray(mask, bool)
  chex.assert_shape(advantages, mask.shape[:-1])
  # The advantage of a completion without a token may be anything.
  advantages = select(as_float(advantages), jnp.any(mask, axis=-1))
  error = jax.lax.stop_gradient(advantages) - tau * sequence_log_ratio(logp, old_logp, mask)
  loss = at_tokens(jnp.square(error) / (2 * tau), mask)
  return SurrogateLoss(loss, jnp.zeros(loss.shape, bool))
