"""Surrogate losses, per token and never reduced.

Each returns `SurrogateLoss(loss, clipped)`, both of the shape of `logp`; `clipped` is true
where a clip acts. There the gradient is exactly 0, but for CISPO, which bounds a weight;
the limit of 20 nats on log-ratios (see `ratio`) is not counted as a clip.
Gradients flow through `logp` only: `old_logp` and `advantages` are data.
"""

import chex
import jax
import jax.numpy as jnp

from pgax.ops.kl import MAX_LOG_RATIO
from pgax.ops.masking import masked_mean, select
from pgax.types import Array, SurrogateLoss


def _floats(*arrays: Array) -> list[Array]:
  chex.assert_equal_shape(arrays)
  return [jnp.asarray(x, jnp.float32) for x in arrays]


def _check_clip(clip_low: float, clip_high: float) -> None:
  if not 0 <= clip_low <= 1 or not clip_high >= 0:  # so that nan is refused too
    raise ValueError(
      f"clip_low is {clip_low} and clip_high is {clip_high}; allowed are clip_low in "
      "[0, 1] and clip_high >= 0"
    )


def ratio(logp: Array, old_logp: Array) -> Array:
  """Importance ratio of the live policy to the one that the update starts from.

  `exp(clip(logp - sg(old_logp), -20, 20))`: finite whatever the log-probabilities are. A
  token beyond these limits has no gradient, whether or not its loss has a clip.

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
  _check_clip(clip_low, clip_high)
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


def _sequence_log_ratio(logp: Array, old_logp: Array, mask: Array) -> Array:
  """Mean log-ratio of each sequence's real tokens, `[..., 1]`; 0 for an empty one."""
  log_ratio = select(logp, mask) - jax.lax.stop_gradient(select(old_logp, mask))
  return masked_mean(log_ratio, mask, axis=-1)[..., None]


def gspo(
  logp: Array,
  old_logp: Array,
  advantages: Array,
  mask: Array,
  clip_low: float,
  clip_high: float,
) -> SurrogateLoss:
  """The clipped surrogate with one ratio for a whole sequence.

  `s = exp(mean_t (logp - old_logp))`, and `max(-A * s, -A * clip(s, 1 - clip_low,
  1 + clip_high))` at every token. Under sequence-mean weights this sums to one term a
  sequence. Source: GSPO, arXiv 2507.18071, which takes 3e-4 and 4e-4.

  Args:
    logp: `[..., T]` live log-probabilities, nats.
    old_logp: `[..., T]` of the policy that the update starts from, nats.
    advantages: `[..., T]`, in units of reward.
    mask: `[..., T]` bool or 0/1.
    clip_low: how far the ratio may fall below 1, in [0, 1].
    clip_high: how far the ratio may rise above 1, at least 0.

  Returns:
    `SurrogateLoss`; a sequence is clipped as a whole.

  Raises:
    ValueError: if a bound is out of its range.
  """
  logp, old_logp, advantages = _floats(logp, old_logp, advantages)
  mean = jnp.broadcast_to(_sequence_log_ratio(logp, old_logp, mask), logp.shape)
  return clipped(mean, jnp.zeros_like(mean), advantages, clip_low, clip_high)


def gspo_token(
  logp: Array,
  old_logp: Array,
  advantages: Array,
  mask: Array,
  clip_low: float,
  clip_high: float,
) -> SurrogateLoss:
  """GSPO whose gradient goes to each token by itself, for advantages that differ by token.

  `s_t = sg(s) * exp(logp_t - sg(logp_t))` in the place of GSPO's `s`. Source: GSPO-token,
  arXiv 2507.18071.

  Args:
    logp: `[..., T]` live log-probabilities, nats.
    old_logp: `[..., T]` of the policy that the update starts from, nats.
    advantages: `[..., T]`, in units of reward.
    mask: `[..., T]` bool or 0/1.
    clip_low: how far the ratio may fall below 1, in [0, 1].
    clip_high: how far the ratio may rise above 1, at least 0.

  Returns:
    `SurrogateLoss`; a sequence is clipped as a whole where its advantages have one sign.

  Raises:
    ValueError: if a bound is out of its range.
  """
  logp, old_logp, advantages = _floats(logp, old_logp, advantages)
  mean = jax.lax.stop_gradient(_sequence_log_ratio(logp, old_logp, mask))
  own = mean + (logp - jax.lax.stop_gradient(logp))
  return clipped(own, jnp.zeros_like(own), advantages, clip_low, clip_high)


def gmpo(
  logp: Array, old_logp: Array, advantages: Array, mask: Array, clip: float = 0.4
) -> SurrogateLoss:
  """The geometric mean of token ratios, each bounded on the side that PPO would clip.

  `-A * exp(mean_t l_t)`, with `l_t = min(logp - old_logp, clip)` where `A > 0` and
  `max(logp - old_logp, -clip)` where `A < 0`. Source: GMPO, arXiv 2507.20673.

  Args:
    logp: `[..., T]` live log-probabilities, nats.
    old_logp: `[..., T]` of the policy that the update starts from, nats.
    advantages: `[..., T]`, the same for all tokens of a sequence.
    mask: `[..., T]` bool or 0/1.
    clip: bound of a token's log-ratio, nats, at least 0.

  Returns:
    `SurrogateLoss`.

  Raises:
    ValueError: if `clip` is negative.
  """
  if not clip >= 0:
    raise ValueError(f"clip is {clip}; it must be at least 0")
  logp, old_logp, advantages = _floats(logp, old_logp, advantages)
  advantages = jax.lax.stop_gradient(advantages)
  log_ratio = select(logp, mask) - jax.lax.stop_gradient(select(old_logp, mask))
  too_high = (advantages > 0) & (log_ratio > clip)
  too_low = (advantages < 0) & (log_ratio < -clip)
  bounded = jnp.where(too_high, clip, jnp.where(too_low, -clip, log_ratio))
  mean = masked_mean(bounded, mask, axis=-1)[..., None]
  # In exact arithmetic one side of the mean is bounded already; the other is not.
  mean = jnp.clip(mean, -MAX_LOG_RATIO, MAX_LOG_RATIO)
  return SurrogateLoss(-advantages * jnp.exp(mean), too_high | too_low)


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
  _check_clip(clip_low, clip_high)
  logp, advantages = _floats(logp, advantages)
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
  advantages, r = _floats(jax.lax.stop_gradient(advantages), ratio(logp, old_logp))
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
  advantages, r = _floats(jax.lax.stop_gradient(advantages), ratio(logp, old_logp))
  moved = jnp.exp(jnp.asarray(logp, jnp.float32)) - jnp.exp(
    jnp.asarray(old_logp, jnp.float32)
  )
  far = ((advantages > 0) & (moved > delta)) | ((advantages < 0) & (moved < -delta))
  return SurrogateLoss(-advantages * jnp.where(far, jax.lax.stop_gradient(r), r), far)
