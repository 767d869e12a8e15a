"""Losses over the pairs of a group's completions, without a baseline.

A pair is two different completions that both have a token. The losses of completions are
scaled so that their mean over a group is the mean over its unordered pairs. The loss of a
completion without a partner is 0.
"""

import math
from typing import Literal

import chex
import jax
import jax.numpy as jnp

from pgax.ops.masking import masked_mean, select
from pgax.ops.precision import as_float, is_concrete
from pgax.ops.surrogates.ratios import at_tokens, check_positive, ratio, sequence_log_ratio
from pgax.ops.surrogates.token import clipped
from pgax.types import Array, SurrogateLoss

__all__ = ["copg", "p3o"]


def _pairs(mask: Array) -> Array:
  """Mask of the pairs of completions, `[..., G, G]` bool."""
  has_tokens = jnp.any(mask, axis=-1)
  both = has_tokens[..., :, None] & has_tokens[..., None, :]
  return both & ~jnp.eye(has_tokens.shape[-1], dtype=bool)


def _differences(x: Array) -> Array:
  """`x_i - x_j` of `[..., G]`, as `[..., G, G]`."""
  return x[..., :, None] - x[..., None, :]


def _rewards(rewards: Array, mask: Array) -> Array:
  """Rewards `[..., G]` as data, 0 for completions without a token."""
  chex.assert_shape(rewards, mask.shape[:-1])
  rewards = as_float(jax.lax.stop_gradient(rewards))
  return select(rewards, jnp.any(mask, axis=-1))


def _separate(gap: Array, log_ratio: Array, rho: Array, clip: float) -> tuple[Array, Array]:
  """P3O (V1): the loss of each pair `[..., G, G]`, and where the clip acts."""
  advantages = gap / 2 * rho[..., None, :]  # `clipped` takes these as data
  own = jnp.broadcast_to(log_ratio[..., :, None], gap.shape)
  terms, acts = clipped(own, jnp.zeros_like(own), advantages, clip, clip)
  return 2 * terms, acts  # a completion has one of the two terms of a pair


def _joint(gap: Array, log_ratio: Array, rho: Array, clip: float) -> tuple[Array, Array]:
  """P3O (V2): the loss of each pair `[..., G, G]`, and where the clip acts."""
  weight = jax.lax.stop_gradient(gap / 2 * rho[..., :, None] * rho[..., None, :])
  difference = _differences(log_ratio)
  too_high = (gap > 0) & (difference > clip)
  too_low = (gap < 0) & (difference < -clip)
  terms = -weight * jnp.where(too_high, clip, jnp.where(too_low, -clip, difference))
  return terms, too_high | too_low


_FORMS = {"separate": _separate, "joint": _joint}


def p3o(
  logp: Array,
  old_logp: Array,
  rewards: Array,
  mask: Array,
  clip: float = 0.2,
  form: Literal["separate", "joint"] = "separate",
) -> SurrogateLoss:
  """P3O: the clipped policy gradient from pairs of completions of the same prompt.

  With `rho` the ratio of a whole completion, `l` its logarithm, and `D = R_i - R_j`:

  - "separate" (V1) clips each of the two ratios. A pair has the loss `L_ij + L_ji`, with
    `L_ij = max(-a * rho_i, -a * clip(rho_i, 1 - clip, 1 + clip))` and
    `a = stop_gradient(D / 2 * rho_j)`.
  - "joint" (V2) clips their quotient. A pair has the loss
    `max(-w * d, -w * clip(d, -clip, clip))`, with `d = l_i - l_j` and
    `w = stop_gradient(D / 2 * rho_i * rho_j)`.

  At ratio 1 both have RLOO's gradient. Source: arXiv 2310.00212.

  Args:
    logp: `[..., G, T]` log-probabilities, nats.
    old_logp: `[..., G, T]` log-probabilities under the old policy, nats.
    rewards: `[..., G]` rewards of completions, minus any KL penalty.
    mask: `[..., G, T]` bool or 0/1, the loss mask.
    clip: largest distance of a ratio from 1, in [0, 1]; with "joint", that of the log of
      the quotient from 0, nats, at least 0.
    form: "separate" or "joint".

  Returns:
    `SurrogateLoss`: a completion's loss at each of its tokens, 0 where masked. A
    completion is clipped if it has pairs with different rewards and the clip acts in all of
    them.

  Raises:
    ValueError: if `clip` is out of range, or `form` is unknown.

  Example:
    >>> logp, old_logp = jnp.log(jnp.array([[[0.5], [0.5]], [[0.4], [0.5]]]))
    >>> rewards, mask = jnp.array([1.0, 0.0]), jnp.ones((2, 1))
    >>> print(surrogates.p3o(logp, old_logp, rewards, mask).loss.ravel())  # clipped at 1.2
    [-1.2   1.25]
  """
  if form not in _FORMS:
    raise ValueError(f"form is {form!r}; allowed are 'separate' and 'joint'")
  if is_concrete(clip) and not 0 <= clip <= (1 if form == "separate" else math.inf):
    raise ValueError(
      f"clip is {clip} and form is {form!r}; clip must be in [0, 1] with 'separate', "
      "and at least 0 with 'joint'"
    )
  mask = jnp.asarray(mask, bool)
  pairs, gap = _pairs(mask), _differences(_rewards(rewards, mask))
  log_ratio = sequence_log_ratio(logp, old_logp, mask)
  rho = ratio(log_ratio, jnp.zeros_like(log_ratio))
  terms, acts = _FORMS[form](gap, log_ratio, rho, clip)
  differ = pairs & (gap != 0)
  all_clipped = jnp.any(differ, axis=-1) & jnp.all(acts | ~differ, axis=-1)
  loss = masked_mean(terms, pairs, axis=-1)
  return SurrogateLoss(at_tokens(loss, mask), at_tokens(all_clipped, mask))


def copg(
  logp: Array, ref_logp: Array, rewards: Array, mask: Array, beta: Array | float
) -> SurrogateLoss:
  """CoPG: squared difference of two completions' penalized rewards.

  A pair has the loss `(P_i - P_j)**2 / (2 beta)`, with `P = R - beta * sum_t (logp -
  ref_logp)`; the penalty is differentiated. It needs no ratio to the policy that
  sampled the completions. On-policy its gradient is twice that of RLOO with the penalty, as
  data, in the reward. Source: arXiv 2406.19185.

  Args:
    logp: `[..., G, T]` log-probabilities, nats.
    ref_logp: `[..., G, T]` log-probabilities under the reference policy, nats.
    rewards: `[..., G]` rewards of completions.
    mask: `[..., G, T]` bool or 0/1, the loss mask.
    beta: coefficient of the penalty, in units of reward per nat, positive; a number or a
      scalar array.

  Returns:
    `SurrogateLoss`: a completion's loss at each of its tokens, 0 where masked, with
    `clipped` false everywhere.

  Raises:
    ValueError: if `beta` is a number and not positive.

  Example:
    >>> logp, ref_logp = jnp.array([[-1.0], [-1.0]]), jnp.array([[-2.0], [-1.0]])
    >>> rewards, mask = jnp.array([1.0, 0.0]), jnp.ones((2, 1))
    >>> print(surrogates.copg(logp, ref_logp, rewards, mask, beta=0.5).loss.ravel())
    [0.25 0.25]
  """
  check_positive("beta", beta)
  mask = jnp.asarray(mask, bool)
  penalized = _rewards(rewards, mask) - beta * sequence_log_ratio(logp, ref_logp, mask)
  terms = jnp.square(_differences(penalized)) / (2 * beta)
  loss = at_tokens(masked_mean(terms, _pairs(mask), axis=-1), mask)
  return SurrogateLoss(loss, jnp.zeros(loss.shape, bool))
