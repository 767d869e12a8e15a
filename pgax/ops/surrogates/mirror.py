"""Mirror descent: several steps on a batch, held near the policy that it starts from."""

import chex
import jax
import jax.numpy as jnp

from pgax.ops.kl import k3_corrected
from pgax.ops.masking import select
from pgax.ops.surrogates.ratios import at_tokens, check_positive, sequence_log_ratio
from pgax.ops.surrogates.token import unclipped
from pgax.types import Array, SurrogateLoss


def mdpo(
  logp: Array, old_logp: Array, advantages: Array, step_size: Array | float
) -> SurrogateLoss:
  """The unclipped surrogate and the divergence from the policy that the update starts from.

  `-A * ratio + (1 / step_size) * ratio * k3(logp, old_logp)`. The second term is an
  unbiased estimate of KL(policy || old policy) under samples of the old policy, and is
  never negative; at ratio 1 it and its gradient are 0. Source: MDPO, arXiv 2005.09814,
  which anneals the step size.

  Args:
    logp: `[..., T]` live log-probabilities, nats.
    old_logp: `[..., T]` of the policy that the update starts from, nats.
    advantages: `[..., T]`, in units of reward.
    step_size: nats per unit of reward, positive; a number or a scalar array.

  Returns:
    `SurrogateLoss`, with `clipped` false everywhere.

  Raises:
    ValueError: if `step_size` is a number and not positive.
  """
  check_positive("step_size", step_size)
  surrogate = unclipped(logp, old_logp, advantages)
  divergence = k3_corrected(logp, jax.lax.stop_gradient(old_logp), old_logp)
  return SurrogateLoss(surrogate.loss + divergence / step_size, surrogate.clipped)


def mdpo_kimi(
  logp: Array, old_logp: Array, advantages: Array, mask: Array, tau: Array | float
) -> SurrogateLoss:
  """Squared distance of a completion's log-ratio from the one that mirror descent aims at.

  `(A - tau * sum_t (logp - old_logp))**2 / (2 tau)`. It is divided by `2 tau`, which the
  source leaves out, so that at ratio 1 its gradient is the policy gradient's. Source: Kimi
  k1.5, arXiv 2501.12599, section 2.3.2, where `A = R - mean R` of the group.

  Args:
    logp: `[..., G, T]` live log-probabilities, nats.
    old_logp: `[..., G, T]` of the policy that the update starts from, nats.
    advantages: `[..., G]` of completions, in units of reward.
    mask: `[..., G, T]` bool or 0/1.
    tau: units of reward per nat, positive; a number or a scalar array.

  Returns:
    `SurrogateLoss`: a completion's loss at every one of its tokens, 0 on padding, with
    `clipped` false everywhere.

  Raises:
    ValueError: if `tau` is a number and not positive.
  """
  check_positive("tau", tau)
  mask = jnp.asarray(mask, bool)
  chex.assert_shape(advantages, mask.shape[:-1])
  # A completion without a token may hold anything.
  advantages = select(jnp.asarray(advantages, jnp.float32), jnp.any(mask, axis=-1))
  error = jax.lax.stop_gradient(advantages) - tau * sequence_log_ratio(logp, old_logp, mask)
  loss = at_tokens(jnp.square(error) / (2 * tau), mask)
  return SurrogateLoss(loss, jnp.zeros(loss.shape, bool))
