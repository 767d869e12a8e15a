"""Surrogates of every token by itself."""

import jax
import jax.numpy as jnp

from pgax.ops.surrogates.ratios import check_clip, floats, ratio
from pgax.types import Array, SurrogateLoss


def policy_gradient(logp: Array, advantages: Array) -> SurrogateLoss:
  """The policy gradient itself.

  `loss = -A * logp`. Source: Williams 1992, REINFORCE.

  Args:
    logp: `[..., T]` live log-probabilities, nats.
    advantages: `[..., T]`, in units of reward.

  Returns:
    `SurrogateLoss`, with `clipped` false everywhere.
  """
  logp, advantages = floats(logp, advantages)
  loss = -jax.lax.stop_gradient(advantages) * logp
  return SurrogateLoss(loss, jnp.zeros(loss.shape, bool))


def unclipped(logp: Array, old_logp: Array, advantages: Array) -> SurrogateLoss:
  """The importance-weighted surrogate without any clip.

  `-A * ratio`: the objective of conservative policy iteration, unbiased off-policy and
  with nothing that keeps the update small. Sources: TRPO, arXiv 1502.05477; arXiv
  1707.06347, section 3.

  Args:
    logp: `[..., T]` live log-probabilities, nats.
    old_logp: `[..., T]` of the policy that the update starts from, nats.
    advantages: `[..., T]`, in units of reward.

  Returns:
    `SurrogateLoss`, with `clipped` false everywhere.
  """
  advantages, r = floats(jax.lax.stop_gradient(advantages), ratio(logp, old_logp))
  return SurrogateLoss(-advantages * r, jnp.zeros(r.shape, bool))


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
  check_clip(clip_low, clip_high)
  if dual_clip is not None and not dual_clip > 1:
    raise ValueError(f"dual_clip is {dual_clip}; it must be above 1, or None for no clip")
  advantages, r = floats(jax.lax.stop_gradient(advantages), ratio(logp, old_logp))
  too_high = (advantages > 0) & (r > 1 + clip_high)
  too_low = (advantages < 0) & (r < 1 - clip_low)
  bounded = jnp.where(too_high, 1 + clip_high, jnp.where(too_low, 1 - clip_low, r))
  acts = too_high | too_low
  if dual_clip is not None:
    too_bad = (advantages < 0) & (r > dual_clip)
    bounded, acts = jnp.where(too_bad, dual_clip, bounded), acts | too_bad
  return SurrogateLoss(-advantages * bounded, acts)


def cispo(
  logp: Array, old_logp: Array, advantages: Array, clip_low: float, clip_high: float
) -> SurrogateLoss:
  """The policy gradient, weighted by an importance ratio that is clipped and not followed.

  `-sg(clip(ratio, 1 - clip_low, 1 + clip_high)) * A * logp`: every token keeps a gradient.
  Source: CISPO, arXiv 2506.13585.

  Args:
    logp: `[..., T]` live log-probabilities, nats.
    old_logp: `[..., T]` of the policy that the update starts from, nats.
    advantages: `[..., T]`, in units of reward.
    clip_low: how far the weight may fall below 1, in [0, 1]; 1 for no lower bound.
    clip_high: how far the weight may rise above 1, at least 0.

  Returns:
    `SurrogateLoss`; `clipped` tells where the weight is at a bound.

  Raises:
    ValueError: if a bound is out of its range.
  """
  check_clip(clip_low, clip_high)
  logp, advantages = floats(logp, advantages)
  r = jax.lax.stop_gradient(ratio(logp, old_logp))
  weight = jnp.clip(r, 1 - clip_low, 1 + clip_high)
  return SurrogateLoss(-weight * jax.lax.stop_gradient(advantages) * logp, weight != r)


def sapo(
  logp: Array,
  old_logp: Array,
  advantages: Array,
  tau_pos: float = 1.0,
  tau_neg: float = 1.05,
) -> SurrogateLoss:
  """A soft gate in the place of the clip.

  `-A * (4 / tau) * sigmoid(tau * (ratio - 1))`, with `tau_pos` where `A > 0` and `tau_neg`
  elsewhere. At ratio 1 its slope is the policy gradient's. Source: SAPO, arXiv 2511.20347.

  Args:
    logp: `[..., T]` live log-probabilities, nats.
    old_logp: `[..., T]` of the policy that the update starts from, nats.
    advantages: `[..., T]`, in units of reward.
    tau_pos: sharpness for positive advantages, positive.
    tau_neg: sharpness for the others, positive.

  Returns:
    `SurrogateLoss`, with `clipped` false everywhere.

  Raises:
    ValueError: if a sharpness is not positive.
  """
  if not tau_pos > 0 or not tau_neg > 0:
    raise ValueError(
      f"tau_pos is {tau_pos} and tau_neg is {tau_neg}; both must be positive"
    )
  advantages, r = floats(jax.lax.stop_gradient(advantages), ratio(logp, old_logp))
  tau = jnp.where(advantages > 0, tau_pos, tau_neg)
  loss = -advantages * (4 / tau) * jax.nn.sigmoid(tau * (r - 1))
  return SurrogateLoss(loss, jnp.zeros(loss.shape, bool))


def dppo(
  logp: Array, old_logp: Array, advantages: Array, delta: float = 0.2
) -> SurrogateLoss:
  """The unclipped surrogate, without the tokens whose probability has moved far already.

  `-A * ratio`, its gradient cut where `A > 0 and p - p_old > delta`, or `A < 0 and
  p - p_old < -delta`. Source: DPPO, arXiv 2602.04879.

  Args:
    logp: `[..., T]` live log-probabilities, nats.
    old_logp: `[..., T]` of the policy that the update starts from, nats.
    advantages: `[..., T]`, in units of reward.
    delta: how far a probability may move, in [0, 1].

  Returns:
    `SurrogateLoss`.

  Raises:
    ValueError: if `delta` is out of its range.
  """
  if not 0 <= delta <= 1:
    raise ValueError(f"delta is {delta}; it must be in [0, 1]")
  advantages, r = floats(jax.lax.stop_gradient(advantages), ratio(logp, old_logp))
  moved = jnp.exp(jnp.asarray(logp, jnp.float32)) - jnp.exp(
    jnp.asarray(old_logp, jnp.float32)
  )
  far = ((advantages > 0) & (moved > delta)) | ((advantages < 0) & (moved < -delta))
  return SurrogateLoss(-advantages * jnp.where(far, jax.lax.stop_gradient(r), r), far)
