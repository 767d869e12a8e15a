"""Surrogates of single tokens."""

import jax
import jax.numpy as jnp

from pgax.ops.precision import as_float, is_concrete
from pgax.ops.surrogates.ratios import as_floats, check_clip, ratio
from pgax.types import Array, SurrogateLoss

__all__ = ["cispo", "clipped", "dppo", "policy_gradient", "sapo", "unclipped"]


def policy_gradient(logp: Array, advantages: Array) -> SurrogateLoss:
  """REINFORCE: the policy gradient.

  `loss = -A * logp`. Source: Williams 1992.

  Args:
    logp: `[..., T]` log-probabilities, nats.
    advantages: `[..., T]` advantages, in units of reward.

  Returns:
    `SurrogateLoss`, with `clipped` false everywhere.

  Example:
    >>> logp, advantage = jnp.array([-1.0, -2.0]), jnp.array([1.0, -0.5])
    >>> print(surrogates.policy_gradient(logp, advantage).loss)
    [ 1. -1.]
  """
  logp, advantages = as_floats(logp, advantages)
  loss = -jax.lax.stop_gradient(advantages) * logp
  return SurrogateLoss(loss, jnp.zeros(loss.shape, bool))


def unclipped(logp: Array, old_logp: Array, advantages: Array) -> SurrogateLoss:
  """TRPO: the importance-weighted surrogate, without constraint or clip.

  `-A * ratio`: the objective of conservative policy iteration, which is unbiased off-policy
  and does not limit the update. Sources: arXiv 1502.05477; arXiv 1707.06347, section 3.

  Args:
    logp: `[..., T]` log-probabilities, nats.
    old_logp: `[..., T]` log-probabilities under the old policy, nats.
    advantages: `[..., T]` advantages, in units of reward.

  Returns:
    `SurrogateLoss`, with `clipped` false everywhere.

  Example:
    >>> logp, old_logp = jnp.log(jnp.array([[0.6, 0.1], [0.4, 0.2]]))
    >>> print(surrogates.unclipped(logp, old_logp, jnp.array([1.0, -1.0])).loss)
    [-1.5  0.5]
  """
  advantages, r = as_floats(jax.lax.stop_gradient(advantages), ratio(logp, old_logp))
  return SurrogateLoss(-advantages * r, jnp.zeros(r.shape, bool))


def clipped(
  logp: Array,
  old_logp: Array,
  advantages: Array,
  clip_low: float = 0.2,
  clip_high: float = 0.2,
  dual_clip: float | None = None,
) -> SurrogateLoss:
  """PPO: the clipped surrogate, with separate bounds and an optional dual clip.

  `loss = max(-A * ratio, -A * clip(ratio, 1 - clip_low, 1 + clip_high))`. The clip acts
  where `A > 0 and ratio > 1 + clip_high`, or `A < 0 and ratio < 1 - clip_low`. With
  `dual_clip = c`, the loss of a token with `A < 0` is at most `-A * c`. Sources: PPO,
  arXiv 1707.06347; clip-higher, arXiv 2503.14476; dual clip, arXiv 1912.09729.

  Args:
    logp: `[..., T]` log-probabilities, nats.
    old_logp: `[..., T]` log-probabilities under the old policy, nats.
    advantages: `[..., T]` advantages, in units of reward.
    clip_low: largest distance of the ratio below 1, in [0, 1].
    clip_high: largest distance of the ratio above 1, at least 0.
    dual_clip: bound `c` for negative advantages, above 1; None for no bound.

  Returns:
    `SurrogateLoss`.

  Raises:
    ValueError: if `clip_low` is not in [0, 1], `clip_high` is negative, or `dual_clip` is
      not above 1.

  Example:
    >>> logp, old_logp = jnp.log(jnp.array([[0.6, 0.1], [0.4, 0.2]]))
    >>> print(*surrogates.clipped(logp, old_logp, jnp.array([1.0, -1.0])))  # both clipped
    [-1.2  0.8] [ True  True]
    >>> print(*surrogates.clipped(logp, old_logp, jnp.array([-1.0, 1.0])))
    [ 1.5 -0.5] [False False]
  """
  check_clip(clip_low, clip_high)
  if dual_clip is not None and is_concrete(dual_clip) and not dual_clip > 1:
    raise ValueError(f"dual_clip is {dual_clip}; it must be above 1, or None for no clip")
  advantages, r = as_floats(jax.lax.stop_gradient(advantages), ratio(logp, old_logp))
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
  """CISPO: the policy gradient, weighted by a clipped importance ratio.

  `-stop_gradient(clip(ratio, 1 - clip_low, 1 + clip_high)) * A * logp`, so that every token
  has a gradient. Source: arXiv 2506.13585.

  Args:
    logp: `[..., T]` log-probabilities, nats.
    old_logp: `[..., T]` log-probabilities under the old policy, nats.
    advantages: `[..., T]` advantages, in units of reward.
    clip_low: largest distance of the weight below 1, in [0, 1]; 1 for no lower bound.
    clip_high: largest distance of the weight above 1, at least 0.

  Returns:
    `SurrogateLoss`; `clipped` is true where the weight is at a bound.

  Raises:
    ValueError: if `clip_low` is not in [0, 1], or `clip_high` is negative.

  Example:
    >>> logp, old_logp = jnp.log(jnp.array([[0.6, 0.1], [0.4, 0.2]]))
    >>> loss, clipped = surrogates.cispo(logp, old_logp, jnp.ones(2), 1.0, 0.25)
    >>> print(loss / logp, clipped)
    [-1.25 -0.5 ] [ True False]
  """
  check_clip(clip_low, clip_high)
  logp, advantages = as_floats(logp, advantages)
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
  """SAPO: a soft gate instead of the clip.

  `-A * (4 / tau) * sigmoid(tau * (ratio - 1))`, with `tau_pos` where `A > 0` and `tau_neg`
  elsewhere. At ratio 1 its slope is the policy gradient's. Source: arXiv 2511.20347.

  Args:
    logp: `[..., T]` log-probabilities, nats.
    old_logp: `[..., T]` log-probabilities under the old policy, nats.
    advantages: `[..., T]` advantages, in units of reward.
    tau_pos: sharpness of the gate for positive advantages, positive.
    tau_neg: sharpness for all other advantages, positive.

  Returns:
    `SurrogateLoss`, with `clipped` false everywhere.

  Raises:
    ValueError: if `tau_pos` or `tau_neg` is not positive.

  Example:
    >>> logp, old_logp = jnp.log(jnp.array([[0.6, 0.2], [0.4, 0.2]]))
    >>> print(surrogates.sapo(logp, old_logp, jnp.array([1.0, 1.0])).loss)
    [-2.4898 -2.    ]
  """
  if is_concrete(tau_pos, tau_neg) and not (tau_pos > 0 and tau_neg > 0):
    raise ValueError(
      f"tau_pos is {tau_pos} and tau_neg is {tau_neg}; both must be positive"
    )
  advantages, r = as_floats(jax.lax.stop_gradient(advantages), ratio(logp, old_logp))
  tau = jnp.where(advantages > 0, tau_pos, tau_neg)
  loss = -advantages * (4 / tau) * jax.nn.sigmoid(tau * (r - 1))
  return SurrogateLoss(loss, jnp.zeros(loss.shape, bool))


def dppo(
  logp: Array, old_logp: Array, advantages: Array, delta: float = 0.2
) -> SurrogateLoss:
  """DPPO: the unclipped surrogate, with a bound on the change of a token's probability.

  `-A * ratio`, without gradient where `A > 0 and p - p_old > delta`, or `A < 0 and
  p - p_old < -delta`. Source: arXiv 2602.04879.

  Args:
    logp: `[..., T]` log-probabilities, nats.
    old_logp: `[..., T]` log-probabilities under the old policy, nats.
    advantages: `[..., T]` advantages, in units of reward.
    delta: largest change of a probability, in [0, 1].

  Returns:
    `SurrogateLoss`.

  Raises:
    ValueError: if `delta` is not in [0, 1].

  Example:
    >>> logp, old_logp = jnp.log(jnp.array([[0.8, 0.3], [0.4, 0.2]]))
    >>> print(*surrogates.dppo(logp, old_logp, jnp.ones(2), delta=0.25))
    [-2.  -1.5] [ True False]
  """
  if is_concrete(delta) and not 0 <= delta <= 1:
    raise ValueError(f"delta is {delta}; it must be in [0, 1]")
  advantages, r = as_floats(jax.lax.stop_gradient(advantages), ratio(logp, old_logp))
  change = jnp.exp(as_float(logp)) - jnp.exp(as_float(old_logp))
  far = ((advantages > 0) & (change > delta)) | ((advantages < 0) & (change < -delta))
  return SurrogateLoss(-advantages * jnp.where(far, jax.lax.stop_gradient(r), r), far)
