"""Surrogates with one ratio for a completion, and advantage-weighted likelihood."""

from typing import Literal

import jax
import jax.numpy as jnp

from pgax.ops.kl import MAX_LOG_RATIO
from pgax.ops.masking import masked_mean
from pgax.ops.precision import is_concrete
from pgax.ops.surrogates.ratios import (
  at_tokens,
  masked_floats,
  masked_log_ratio,
  ratio,
  sequence_log_ratio,
)
from pgax.ops.surrogates.token import clipped
from pgax.types import Array, SurrogateLoss

__all__ = ["a_lol", "gmpo", "gspo", "gspo_token"]


def gspo(
  logp: Array,
  old_logp: Array,
  advantages: Array,
  mask: Array,
  clip_low: float,
  clip_high: float,
) -> SurrogateLoss:
  """GSPO: the clipped surrogate with one ratio for each sequence.

  `s = exp(mean_t (logp - old_logp))`, and `max(-A * s, -A * clip(s, 1 - clip_low,
  1 + clip_high))` at every token. Under sequence-mean weights this sums to one term
  for each sequence. Source: arXiv 2507.18071, which takes 3e-4 and 4e-4.

  Args:
    logp: `[..., T]` log-probabilities, nats.
    old_logp: `[..., T]` log-probabilities under the old policy, nats.
    advantages: `[..., T]` advantages, in units of reward.
    mask: `[..., T]` bool or 0/1, the loss mask.
    clip_low: largest distance of the ratio below 1, in [0, 1].
    clip_high: largest distance of the ratio above 1, at least 0.

  Returns:
    `SurrogateLoss`; the clip acts at all tokens of a sequence or at none.

  Raises:
    ValueError: if `clip_low` is not in [0, 1], or `clip_high` is negative.

  Example:
    >>> logp, old_logp = jnp.log(jnp.array([[0.8, 0.2], [0.2, 0.2]]))
    >>> print(surrogates.gspo(logp, old_logp, -jnp.ones(2), jnp.ones(2), 0.5, 0.5).loss)
    [2. 2.]
  """
  logp, old_logp, advantages = masked_floats(mask, logp, old_logp, advantages)
  mean = masked_mean(masked_log_ratio(logp, old_logp, mask), mask, axis=-1)
  mean = jnp.broadcast_to(mean[..., None], logp.shape)
  return clipped(mean, jnp.zeros_like(mean), advantages, clip_low, clip_high)


def gspo_token(
  logp: Array,
  old_logp: Array,
  advantages: Array,
  mask: Array,
  clip_low: float,
  clip_high: float,
) -> SurrogateLoss:
  """GSPO-token: GSPO with a separate gradient for each token.

  GSPO's `s` becomes `s_t = stop_gradient(s) * exp(logp_t - stop_gradient(logp_t))`, for
  advantages that differ between tokens. Source: arXiv 2507.18071.

  Args:
    logp: `[..., T]` log-probabilities, nats.
    old_logp: `[..., T]` log-probabilities under the old policy, nats.
    advantages: `[..., T]` advantages, in units of reward.
    mask: `[..., T]` bool or 0/1, the loss mask.
    clip_low: largest distance of the ratio below 1, in [0, 1].
    clip_high: largest distance of the ratio above 1, at least 0.

  Returns:
    `SurrogateLoss`; the clip acts at all tokens whose advantages have the same sign.

  Raises:
    ValueError: if `clip_low` is not in [0, 1], or `clip_high` is negative.

  Example:
    >>> logp, old_logp = jnp.log(jnp.array([[0.8, 0.2], [0.2, 0.2]]))
    >>> advantage = jnp.array([-1.0, -3.0])
    >>> print(surrogates.gspo_token(logp, old_logp, advantage, jnp.ones(2), 0.5, 0.5).loss)
    [2. 6.]
  """
  logp, old_logp, advantages = masked_floats(mask, logp, old_logp, advantages)
  mean = masked_mean(masked_log_ratio(logp, old_logp, mask), mask, axis=-1)[..., None]
  own = jax.lax.stop_gradient(mean) + (logp - jax.lax.stop_gradient(logp))
  return clipped(own, jnp.zeros_like(own), advantages, clip_low, clip_high)


def gmpo(
  logp: Array, old_logp: Array, advantages: Array, mask: Array, clip: float = 0.4
) -> SurrogateLoss:
  """GMPO: the geometric mean of token ratios, each bounded on the side that PPO clips.

  `-A * exp(mean_t l_t)`, with `l_t = min(logp - old_logp, clip)` where `A > 0` and
  `max(logp - old_logp, -clip)` where `A < 0`. Source: arXiv 2507.20673.

  Args:
    logp: `[..., T]` log-probabilities, nats.
    old_logp: `[..., T]` log-probabilities under the old policy, nats.
    advantages: `[..., T]` advantages, equal at all tokens of a sequence.
    mask: `[..., T]` bool or 0/1, the loss mask.
    clip: bound of a token's log-ratio, nats, at least 0.

  Returns:
    `SurrogateLoss`.

  Raises:
    ValueError: if `clip` is negative.

  Example:
    >>> logp, old_logp = jnp.array([-1.0, -1.0]), jnp.array([-3.0, -1.0])
    >>> print(surrogates.gmpo(logp, old_logp, jnp.ones(2), jnp.ones(2)).loss)  # exp(.2)
    [-1.2214 -1.2214]
  """
  if is_concrete(clip) and not clip >= 0:
    raise ValueError(f"clip is {clip}; it must be at least 0")
  logp, old_logp, advantages = masked_floats(mask, logp, old_logp, advantages)
  advantages = jax.lax.stop_gradient(advantages)
  log_ratio = masked_log_ratio(logp, old_logp, mask)
  too_high = (advantages > 0) & (log_ratio > clip)
  too_low = (advantages < 0) & (log_ratio < -clip)
  bounded = jnp.where(too_high, clip, jnp.where(too_low, -clip, log_ratio))
  mean = masked_mean(bounded, mask, axis=-1)[..., None]
  # The bounds above limit the mean on one side only.
  mean = jnp.clip(mean, -MAX_LOG_RATIO, MAX_LOG_RATIO)
  return SurrogateLoss(-advantages * jnp.exp(mean), too_high | too_low)


def a_lol(
  logp: Array,
  ref_logp: Array | None,
  advantages: Array,
  mask: Array,
  clip: float = 0.9,
  importance: Literal["sequence", "token", "none"] = "sequence",
) -> SurrogateLoss:
  """A-LoL: likelihood of better-than-expected completions, weighted by their advantage.

  `-max(A, 0) * stop_gradient(clip(ratio, 1 - clip, 1 + clip)) * logp`, with the ratio of
  the policy to the reference: that of the completion, that of each token, or 1
  (reference-free). Any policy may have sampled the completions. The source's KL variant is
  the reference-free one with a KL penalty in the loss. Source: arXiv 2305.14718.

  Args:
    logp: `[..., T]` log-probabilities, nats.
    ref_logp: `[..., T]` log-probabilities under the reference policy, nats; ignored with
      "none", and may be None then.
    advantages: `[..., T]` advantages, in units of reward.
    mask: `[..., T]` bool or 0/1, the loss mask.
    clip: largest distance of the ratio from 1, in [0, 1].
    importance: "sequence", "token" or "none".

  Returns:
    `SurrogateLoss`, 0 where masked; `clipped` is true where the weight is at a bound.

  Raises:
    ValueError: if `clip` is not in [0, 1], or `importance` is unknown.

  Example:
    >>> logp, ref_logp = jnp.log(jnp.array([[0.5, 0.5], [0.5, 0.4]]))
    >>> print(surrogates.a_lol(logp, ref_logp, jnp.ones(2), jnp.ones(2)).loss / logp)
    [-1.25 -1.25]
  """
  if importance not in ("sequence", "token", "none"):
    raise ValueError(
      f"importance is {importance!r}; allowed are 'sequence', 'token' and 'none'"
    )
  if is_concrete(clip) and not 0 <= clip <= 1:
    raise ValueError(f"clip is {clip}; it must be in [0, 1]")
  logp, advantages = masked_floats(mask, logp, advantages)
  advantages = jax.lax.stop_gradient(advantages)
  if importance == "none":
    log_ratio = jnp.zeros_like(logp)
  elif importance == "token":
    log_ratio = masked_log_ratio(logp, ref_logp, mask)
  else:
    log_ratio = at_tokens(sequence_log_ratio(logp, ref_logp, mask), mask)
  r = jax.lax.stop_gradient(ratio(log_ratio, jnp.zeros_like(log_ratio)))
  weight = jnp.clip(r, 1 - clip, 1 + clip)
  return SurrogateLoss(-jnp.maximum(advantages, 0.0) * weight * logp, weight != r)
