"""Surrogates with one ratio for a whole completion, and advantage-weighted likelihood."""

from typing import Literal

import jax
import jax.numpy as jnp

from pgax.ops.kl import MAX_LOG_RATIO
from pgax.ops.masking import masked_mean
from pgax.ops.surrogates.ratios import (
  at_tokens,
  masked_floats,
  masked_log_ratio,
  ratio,
  sequence_log_ratio,
)
from pgax.ops.surrogates.token import clipped
from pgax.types import Array, SurrogateLoss


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
  logp, old_logp, advantages = masked_floats(mask, logp, old_logp, advantages)
  mean = masked_mean(masked_log_ratio(logp, old_logp, mask), mask, axis=-1)[..., None]
  own = jax.lax.stop_gradient(mean) + (logp - jax.lax.stop_gradient(logp))
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
  logp, old_logp, advantages = masked_floats(mask, logp, old_logp, advantages)
  advantages = jax.lax.stop_gradient(advantages)
  log_ratio = masked_log_ratio(logp, old_logp, mask)
  too_high = (advantages > 0) & (log_ratio > clip)
  too_low = (advantages < 0) & (log_ratio < -clip)
  bounded = jnp.where(too_high, clip, jnp.where(too_low, -clip, log_ratio))
  mean = masked_mean(bounded, mask, axis=-1)[..., None]
  # In exact arithmetic one side of the mean is bounded already; the other is not.
  mean = jnp.clip(mean, -MAX_LOG_RATIO, MAX_LOG_RATIO)
  return SurrogateLoss(-advantages * jnp.exp(mean), too_high | too_low)


def a_lol(
  logp: Array,
  ref_logp: Array,
  advantages: Array,
  mask: Array,
  clip: float = 0.9,
  importance: Literal["sequence", "token", "none"] = "sequence",
) -> SurrogateLoss:
  """Likelihood of the completions that did better than expected, weighted by how much.

  `-max(A, 0) * sg(clip(ratio, 1 - clip, 1 + clip)) * logp`, the ratio being that of the
  policy to the reference: of the whole completion, of each token, or 1 (reference-free).
  The completions may come from anywhere. The source's KL variant is the reference-free one
  with a KL penalty added to the loss. Source: A-LoL, arXiv 2305.14718.

  Args:
    logp: `[..., T]` live log-probabilities, nats.
    ref_logp: `[..., T]` of the reference policy, nats; not used for "none".
    advantages: `[..., T]`, in units of reward.
    mask: `[..., T]` bool or 0/1.
    clip: how far the weight may move from 1, in [0, 1].
    importance: "sequence", "token" or "none".

  Returns:
    `SurrogateLoss`, 0 on padding; `clipped` tells where the weight is at a bound.

  Raises:
    ValueError: if `clip` is out of its range, or `importance` is not one of the three.
  """
  if importance not in ("sequence", "token", "none"):
    raise ValueError(
      f"importance is {importance!r}; allowed are 'sequence', 'token' and 'none'"
    )
  if not 0 <= clip <= 1:
    raise ValueError(f"clip is {clip}; it must be in [0, 1]")
  logp, ref_logp, advantages = masked_floats(mask, logp, ref_logp, advantages)
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
