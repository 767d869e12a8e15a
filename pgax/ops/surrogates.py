"""Surrogate losses, per token and never reduced.

Each returns `SurrogateLoss(loss, clipped)`, both of the shape of `logp`; `clipped` is
true where a clip acts, that is where the gradient of the token is exactly 0. Gradients
flow through `logp` only: `old_logp` and `advantages` are data.
"""

import chex
import jax
import jax.numpy as jnp

from pgax.ops.kl import MAX_LOG_RATIO
from pgax.types import Array, SurrogateLoss


def _floats(*arrays: Array) -> list[Array]:
  chex.assert_equal_shape(arrays)
  return [jnp.asarray(x, jnp.float32) for x in arrays]


def ratio(logp: Array, old_logp: Array) -> Array:
  """Importance ratio of the live policy to the one that the update starts from.

  `exp(clip(logp - sg(old_logp), -20, 20))`: finite whatever the log-probabilities are.

  Args:
    logp: `[...]` live log-probabilities, nats.
    old_logp: `[...]` of the policy that the update starts from, nats.

  Returns:
    `[...]` float32.
  """
  logp, old_logp = _floats(logp, old_logp)
  log_ratio = logp - jax.lax.stop_gradient(old_logp)
  return jnp.exp(jnp.clip(log_ratio, -MAX_LOG_RATIO, MAX_LOG_RATIO))


def policy_gradient(logp: Array, advantages: Array) -> SurrogateLoss:
  """The policy gradient itself.

  `loss = -A * logp`. Source: Williams 1992, REINFORCE.

  Args:
    logp: `[..., T]` live log-probabilities, nats.
    advantages: `[..., T]`, in units of reward.

  Returns:
    `SurrogateLoss`, with `clipped` false everywhere.
  """
  logp, advantages = _floats(logp, advantages)
  loss = -jax.lax.stop_gradient(advantages) * logp
  return SurrogateLoss(loss, jnp.zeros(loss.shape, bool))


def clipped(
  logp: Array,
  old_logp: Array,
  advantages: Array,
  clip_low: float = 0.2,
  clip_high: float = 0.2,
  dual_clip: float | None = None,
) -> SurrogateLoss:
  """PPO's clipped surrogate, with separate bounds and an optional dual clip.

  `loss = max(-A * ratio, -A * clip(ratio, 1 - clip_low, 1 + clip_high))`. The clip acts
  where `A > 0 and ratio > 1 + clip_high`, or `A < 0 and ratio < 1 - clip_low`. With
  `dual_clip = c`, the loss of a token with `A < 0` is at most `-A * c`. Sources: PPO,
  arXiv 1707.06347; clip-higher, arXiv 2503.14476; dual clip, arXiv 1912.09729.

  Args:
    logp: `[..., T]` live log-probabilities, nats.
    old_logp: `[..., T]` of the policy that the update starts from, nats.
    advantages: `[..., T]`, in units of reward.
    clip_low: how far the ratio may fall below 1, in [0, 1].
    clip_high: how far the ratio may rise above 1, at least 0.
    dual_clip: the bound `c` for negative advantages, above 1; none by default.

  Returns:
    `SurrogateLoss`.

  Raises:
    ValueError: if a bound is out of its range.
  """
  if not 0 <= clip_low <= 1 or not clip_high >= 0:  # so that nan is refused too
    raise ValueError(
      f"clip_low is {clip_low} and clip_high is {clip_high}; allowed are clip_low in "
      "[0, 1] and clip_high >= 0"
    )
  if dual_clip is not None and not dual_clip > 1:
    raise ValueError(f"dual_clip is {dual_clip}; it must be above 1, or None for no clip")
  advantages, r = _floats(jax.lax.stop_gradient(advantages), ratio(logp, old_logp))
  too_high = (advantages > 0) & (r > 1 + clip_high)
  too_low = (advantages < 0) & (r < 1 - clip_low)
  bounded = jnp.where(too_high, 1 + clip_high, jnp.where(too_low, 1 - clip_low, r))
  acts = too_high | too_low
  if dual_clip is not None:
    too_bad = (advantages < 0) & (r > dual_clip)
    bounded, acts = jnp.where(too_bad, dual_clip, bounded), acts | too_bad
  return SurrogateLoss(-advantages * bounded, acts)
