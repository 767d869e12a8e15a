"""Losses over the pairs of a group's completions: no baseline is needed.

The pairs are those of different completions that both have a token. What a completion gets
is such that the mean over the completions of a group is the mean over its unordered pairs.
A completion without a partner gets 0.
"""

from typing import Literal

import chex
import jax
import jax.numpy as jnp

from pgax.ops.masking import masked_mean, select
from pgax.ops.surrogates.ratios import (
  at_tokens,
  check_positive,
  ratio,
  sequence_log_ratio,
)
from pgax.ops.surrogates.token import clipped
from pgax.types import Array, SurrogateLoss


def _pairs(mask: Array) -> Array:
  """Which pairs of completions there are, `[..., G, G]` bool."""
  real = jnp.any(mask, axis=-1)
  both = real[..., :, None] & real[..., None, :]
  return both & ~jnp.eye(real.shape[-1], dtype=bool)


def _differences(x: Array) -> Array:
  """`x_i - x_j` of `[..., G]`, as `[..., G, G]`."""
  return x[..., :, None] - x[..., None, :]


def _rewards(rewards: Array, mask: Array) -> Array:
  """Rewards `[..., G]` as data, 0 for completions without a token."""
  chex.assert_shape(rewards, mask.shape[:-1])
  rewards = jnp.asarray(jax.lax.stop_gradient(rewards), jnp.float32)
  return select(rewards, jnp.any(mask, axis=-1))


def p3o(
  logp: Array,
  old_logp: Array,
  rewards: Array,
  mask: Array,
  clip: float = 0.2,
  form: Literal["separate", "joint"] = "separate",
) -> SurrogateLoss:
  """The policy gradient from comparisons of two completions of the same prompt, clipped.

  With `rho` the ratio of a whole completion, `l` its logarithm, and `D = R_i - R_j`:

  - "separate" (V1) clips the two ratios one by one. A pair has the loss `L_ij + L_ji`,
    `L_ij = max(-a * rho_i, -a * clip(rho_i, 1 - clip, 1 + clip))`, `a = D / 2 * sg(rho_j)`.
  - "joint" (V2) clips their quotient. A pair has the loss
    `max(-w * d, -w * clip(d, -clip, clip))`, with `w = sg(D / 2 * rho_i * rho_j)` and
    `d = l_i - l_j`.

  At ratio 1 both have RLOO's gradient. Adding the same to all rewards of a group changes
  nothing. Source: P3O, arXiv 2310.00212.

  Args:
    logp: `[..., G, T]` live log-probabilities, nats.
    old_logp: `[..., G, T]` of the policy that the update starts from, nats.
    rewards: `[..., G]` rewards of completions, KL penalty already subtracted.
    mask: `[..., G, T]` bool or 0/1.
    clip: how far a ratio may move from 1, in [0, 1]; for "joint", how far the log of the
      quotient may move from 0, nats, at least 0.
    form: "separate" or "joint".

  Returns:
    `SurrogateLoss`: a completion's loss at every one of its tokens, 0 on padding. It is
    clipped where the clip takes its gradient away in every pair whose rewards differ, and
    there is such a pair.

  Raises:
    ValueError: if `clip` is out of its range, or `form` is not one of the two.
  """
  if form not in ("separate", "joint"):
    raise ValueError(f"form is {form!r}; allowed are 'separate' and 'joint'")
  if not clip >= 0 or (form == "separate" and clip > 1):
    raise ValueError(
      f"clip is {clip} and form is {form!r}; allowed are a clip in [0, 1] for 'separate' "
      "and one of at least 0 for 'joint'"
    )
  mask = jnp.asarray(mask, bool)
  pairs, gap = _pairs(mask), _differences(_rewards(rewards, mask))
  log_ratio = sequence_log_ratio(logp, old_logp, mask)
  rho = ratio(log_ratio, jnp.zeros_like(log_ratio))
  if form == "separate":
    advantages = gap / 2 * rho[..., None, :]  # `clipped` takes these as data
    own = jnp.broadcast_to(log_ratio[..., :, None], gap.shape)
    terms, acts = clipped(own, jnp.zeros_like(own), advantages, clip, clip)
    terms = 2 * terms  # the half of the pair that is this completion's
  else:
    weight = jax.lax.stop_gradient(gap / 2 * rho[..., :, None] * rho[..., None, :])
    moved = _differences(log_ratio)
    too_high, too_low = (gap > 0) & (moved > clip), (gap < 0) & (moved < -clip)
    acts = too_high | too_low
    terms = -weight * jnp.where(too_high, clip, jnp.where(too_low, -clip, moved))
  differ = pairs & (gap != 0)
  stuck = jnp.any(differ, axis=-1) & jnp.all(acts | ~differ, axis=-1)
  loss = masked_mean(terms, pairs, axis=-1)
  return SurrogateLoss(at_tokens(loss, mask), at_tokens(stuck, mask))


def copg(
  logp: Array, ref_logp: Array, rewards: Array, mask: Array, beta: Array | float
) -> SurrogateLoss:
  """Squared difference of two completions' rewards, each less its penalty.

  A pair has the loss `(P_i - P_j)**2 / (2 beta)`, with `P = R - beta * sum_t (logp -
  ref_logp)`; the penalty is live. It needs no ratio to the policy that drew the
  completions. Its gradient is twice RLOO's with the penalty stopped and in the reward.
  Source: CoPG, arXiv 2406.19185.

  Args:
    logp: `[..., G, T]` live log-probabilities, nats.
    ref_logp: `[..., G, T]` of the reference policy, nats.
    rewards: `[..., G]` rewards of completions.
    mask: `[..., G, T]` bool or 0/1.
    beta: coefficient of the penalty, in units of reward per nat, positive; a number or a
      scalar array.

  Returns:
    `SurrogateLoss`: a completion's loss at every one of its tokens, 0 on padding, with
    `clipped` false everywhere.

  Raises:
    ValueError: if `beta` is a number and not positive.
  """
  check_positive("beta", beta)
  mask = jnp.asarray(mask, bool)
  penalised = _rewards(rewards, mask) - beta * sequence_log_ratio(logp, ref_logp, mask)
  terms = jnp.square(_differences(penalised)) / (2 * beta)
  loss = at_tokens(masked_mean(terms, _pairs(mask), axis=-1), mask)
  return SurrogateLoss(loss, jnp.zeros(loss.shape, bool))
