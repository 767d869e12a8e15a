"""Group and batch advantages: rewards `[..., G]` to advantages, `[..., G]` or per token.

The group is the last axis. `valid` marks the completions that could be scored; one that
could not takes no part in the statistics of its group and gets advantage 0, and its
reward may then hold anything, nan included. Arithmetic is in float32.
"""

import chex
import jax
import jax.numpy as jnp

from pgax.ops.masking import masked_mean, masked_sum, select
from pgax.ops.returns import discounted_returns
from pgax.types import Array


def _checked(rewards: Array, valid: Array | None) -> tuple[Array, Array]:
  """Rewards as float32 with invalid entries at 0, and `valid` as bool."""
  rewards = jnp.asarray(rewards, jnp.float32)
  if rewards.ndim < 1:
    raise ValueError(f"rewards has shape {rewards.shape}; it needs a group axis [..., G]")
  valid = jnp.ones(rewards.shape, bool) if valid is None else jnp.asarray(valid, bool)
  chex.assert_equal_shape([rewards, valid])
  return select(rewards, valid), valid


def _centred(rewards: Array, valid: Array) -> Array:
  """Rewards less the mean of their group; 0 where invalid.

  The largest reward is taken off first. An all-equal group is then all zeros before its
  mean is formed, and no rounding of that mean is left for a tiny deviation to magnify.
  """
  largest = jnp.max(rewards, axis=-1, keepdims=True, where=valid, initial=-jnp.inf)
  shifted = select(rewards - select(largest, jnp.isfinite(largest)), valid)
  return select(shifted - masked_mean(shifted, valid, -1)[..., None], valid)


def batch_mean(rewards: Array, valid: Array | None = None) -> Array:
  """REINFORCE with the mean of the whole batch as its baseline.

  `A = R - mean(R)`, the mean over every axis. Source: Williams 1992, REINFORCE.

  Args:
    rewards: `[..., G]` rewards.
    valid: `[..., G]` bool, the completions that could be scored; all by default.

  Returns:
    `[..., G]` float32 advantages.
  """
  rewards, valid = _checked(rewards, valid)
  return _centred(rewards.ravel(), valid.ravel()).reshape(rewards.shape)


def rloo(rewards: Array, valid: Array | None = None) -> Array:
  """REINFORCE with a leave-one-out baseline.

  `A_k = R_k - mean_{j != k} R_j = G / (G - 1) * (R_k - mean R)`; unbiased, because the
  baseline of a completion does not contain its own reward. Source: RLOO, arXiv
  2402.14740.

  Args:
    rewards: `[..., G]` rewards.
    valid: `[..., G]` bool, the completions that could be scored; all by default. A group
      with a single valid completion has no baseline and gets advantage 0.

  Returns:
    `[..., G]` float32 advantages.

  Raises:
    ValueError: if `G` is 1.
  """
  rewards, valid = _checked(rewards, valid)
  if rewards.shape[-1] < 2:
    raise ValueError(
      f"group size is {rewards.shape[-1]}; RLOO's leave-one-out baseline needs at least 2"
    )
  count = jnp.sum(valid, axis=-1, keepdims=True, dtype=jnp.float32)
  return _centred(rewards, valid) * count / jnp.maximum(count - 1.0, 1.0)


def grpo(
  rewards: Array, valid: Array | None = None, ddof: int = 0, eps: float = 1e-6
) -> Array:
  """Rewards standardised within their group.

  `A = (R - mean R) / (std R + eps)`. An all-equal group, a group of one included, gets
  exactly 0. Source: GRPO, arXiv 2402.03300.

  Args:
    rewards: `[..., G]` rewards.
    valid: `[..., G]` bool, the completions that could be scored; all by default.
    ddof: 0 divides the variance by the group size; 1 by one less, as TRL and verl do.
    eps: added to the standard deviation, in units of reward.

  Returns:
    `[..., G]` float32 advantages.

  Raises:
    ValueError: if `ddof` is not 0 or 1, or `eps` is negative.
  """
  if not eps >= 0:
    raise ValueError(f"eps is {eps}; it must be at least 0")
  if ddof not in (0, 1):
    raise ValueError(f"ddof is {ddof}; allowed are 0 (population) and 1 (sample)")
  rewards, valid = _checked(rewards, valid)
  centred = _centred(rewards, valid)
  count = jnp.sum(valid, axis=-1, keepdims=True, dtype=jnp.float32)
  variance = masked_sum(centred**2, valid, -1)[..., None] / jnp.maximum(count - ddof, 1.0)
  # An all-equal group has no signal whatever eps is. It is kept away from the root, whose
  # slope at 0 is infinite, and from 0/0 when eps is 0.
  signal = variance > 0
  std = jnp.sqrt(jnp.where(signal, variance, 1.0))
  return jnp.where(signal, centred / (std + eps), 0.0)


def dr_grpo(rewards: Array, valid: Array | None = None) -> Array:
  """Rewards less the mean of their group, not divided by its deviation.

  `A = R - mean R`. Source: Dr. GRPO, arXiv 2503.20783.

  Args:
    rewards: `[..., G]` rewards.
    valid: `[..., G]` bool, the completions that could be scored; all by default.

  Returns:
    `[..., G]` float32 advantages.
  """
  return _centred(*_checked(rewards, valid))


def remax(rewards: Array, greedy_rewards: Array) -> Array:
  """REINFORCE with the reward of the greedy completion as its baseline.

  `A = R - R(greedy completion of the same prompt)`. Source: ReMax, arXiv 2310.10505.

  Args:
    rewards: `[..., G]` rewards of sampled completions.
    greedy_rewards: `[...]` reward of each prompt's greedy completion.

  Returns:
    `[..., G]` float32 advantages.
  """
  rewards, _ = _checked(rewards, None)
  greedy_rewards = jnp.asarray(greedy_rewards, jnp.float32)
  chex.assert_shape(greedy_rewards, rewards.shape[:-1])
  return rewards - greedy_rewards[..., None]


def opo(rewards: Array, lengths: Array, valid: Array | None = None) -> Array:
  """Rewards less their mean weighted by length, the baseline of least variance.

  `A = R - sum_i l_i R_i / sum_i l_i`. Source: OPO, arXiv 2505.23585.

  Args:
    rewards: `[..., G]` rewards.
    lengths: `[..., G]` lengths of the completions, in tokens.
    valid: `[..., G]` bool, the completions that could be scored; all by default.

  Returns:
    `[..., G]` float32 advantages; 0 for a group without a token.
  """
  rewards, valid = _checked(rewards, valid)
  lengths = select(jnp.asarray(lengths, jnp.float32), valid)
  # Relative to the mean, so that an all-equal group is exactly 0 whatever the lengths.
  centred = _centred(rewards, valid)
  total = jnp.sum(lengths, axis=-1, keepdims=True)
  shift = jnp.sum(lengths * centred, axis=-1, keepdims=True) / jnp.maximum(total, 1.0)
  return select(jnp.where(total > 0, centred - shift, 0.0), valid)


def maxrl(rewards: Array, valid: Array | None = None) -> Array:
  """Rewards less the mean of their group, over that mean.

  `A = (R - mean R) / mean R`, and 0 where the mean is not positive. For binary rewards
  this follows the gradient of maximum likelihood rather than of the expected reward.
  Source: MaxRL, arXiv 2602.02710.

  Args:
    rewards: `[..., G]` rewards, binary or at least not negative.
    valid: `[..., G]` bool, the completions that could be scored; all by default.

  Returns:
    `[..., G]` float32 advantages.
  """
  rewards, valid = _checked(rewards, valid)
  mean = masked_mean(rewards, valid, -1)[..., None]
  # A mean below 0, as penalties may make it, would turn the sign around.
  signal = mean > 0
  return jnp.where(signal, _centred(rewards, valid) / jnp.where(signal, mean, 1.0), 0.0)


def moving_average(
  rewards: Array, baseline: Array, rate: float, valid: Array | None = None
) -> tuple[Array, Array]:
  """REINFORCE with a baseline that follows the mean reward.

  `A = R - b`, and then `b <- (1 - rate) * b + rate * mean(R)`. The state is the caller's.
  Source: Williams 1992, reinforcement comparison.

  Args:
    rewards: `[..., G]` rewards.
    baseline: float32 scalar, from the batches before this one.
    rate: how fast the baseline follows, in [0, 1].
    valid: `[..., G]` bool, the completions that could be scored; all by default.

  Returns:
    `[..., G]` float32 advantages and the next baseline, which stays as it is after a batch
    with nothing to score.

  Raises:
    ValueError: if `rate` is out of its range.
  """
  if not 0 <= rate <= 1:
    raise ValueError(f"rate is {rate}; it must be in [0, 1]")
  rewards, valid = _checked(rewards, valid)
  moved = (1 - rate) * baseline + rate * masked_mean(rewards, valid)
  return select(rewards - baseline, valid), jnp.where(jnp.any(valid), moved, baseline)


def grpo_process(
  step_rewards: Array,
  step_mask: Array,
  step_ends: Array,
  mask: Array,
  ddof: int = 0,
  eps: float = 1e-6,
) -> Array:
  """GRPO with process supervision: every step of a completion has its own reward.

  The rewards of all steps of all completions of a group are standardised together;
  `A_t` is the sum of those of the steps that end at or after token `t`. Source: GRPO,
  arXiv 2402.03300, section 4.1.3.

  Args:
    step_rewards: `[..., G, S]` reward of each step.
    step_mask: `[..., G, S]` bool, true on steps that there are.
    step_ends: `[..., G, S]` int, index of the token at which a step ends; one beyond the
      tokens counts for all of them, a negative one for none.
    mask: `[..., G, T]` bool or 0/1, the completions' tokens.
    ddof: 0 or 1, as for `grpo`.
    eps: added to the standard deviation, in units of reward.

  Returns:
    `[..., G, T]` float32 advantages, 0 on padding.

  Raises:
    ValueError: if `ddof` is not 0 or 1, or `eps` is negative.
  """
  chex.assert_equal_shape([step_rewards, step_mask, step_ends])
  chex.assert_equal_shape_prefix([step_rewards, mask], jnp.ndim(mask) - 1)
  shape, joint = step_rewards.shape, (*step_rewards.shape[:-2], -1)
  step_mask = jnp.asarray(step_mask, bool)
  normalised = grpo(
    jnp.reshape(step_rewards, joint), jnp.reshape(step_mask, joint), ddof, eps
  ).reshape(shape)
  # Scattered to the tokens where the steps end, and summed from the last token back: no
  # array is larger than the steps or the tokens.
  limit = mask.shape[-1]
  ends = jnp.asarray(step_ends).reshape(-1, shape[-1])
  # A step that ends beyond the tokens counts for all of them; one that ends before, for
  # none: it goes to a place that is not there, and is dropped.
  slots = jnp.where(ends < 0, limit, jnp.minimum(ends, limit - 1))
  rows = jnp.arange(slots.shape[0])[:, None]
  at_ends = jnp.zeros((slots.shape[0], limit), jnp.float32)
  at_ends = at_ends.at[rows, slots].add(normalised.reshape(slots.shape), mode="drop")
  return select(jax.lax.cumsum(at_ends, axis=1, reverse=True).reshape(mask.shape), mask)


def whiten(
  x: Array, mask: Array, shift_mean: bool = True, ddof: int = 0, eps: float = 1e-8
) -> Array:
  """Standardises values over the whole batch.

  `(x - mean) / (std + eps)` over real entries of all axes; with `shift_mean=False` the mean
  is added back, and only the scale changes. Source: arXiv 2203.02155.

  Args:
    x: `[...]` values, such as token advantages.
    mask: `[...]` bool or 0/1, the shape of `x`.
    shift_mean: whether the result has mean 0.
    ddof: 0 divides the variance by the number of entries; 1 by one less.
    eps: added to the standard deviation.

  Returns:
    `[...]` float32, 0 on padding. Equal values get 0 (their mean, without shift).

  Raises:
    ValueError: if `ddof` is not 0 or 1, or `eps` is negative.
  """
  x, mask = _checked(x, mask)
  flat, real = x.ravel(), mask.ravel()
  scaled = grpo(flat, real, ddof, eps)
  if not shift_mean:
    # (x - mean) / std + mean, formed from the standardised values.
    scaled = scaled + masked_mean(flat, real)
  return select(scaled, real).reshape(x.shape)


def reinforce_pp(
  rewards: Array,
  token_kl: Array,
  mask: Array,
  valid: Array | None = None,
  kl_coef: Array | float = 0.0,
  group_baseline: bool = False,
  discount: float = 1.0,
) -> Array:
  """REINFORCE++: token KL in the reward, return to go, whitened over the global batch.

  `r_t = -kl_coef * k1_t`, plus the completion's reward at its last token; `A = whiten(G)`.
  The baseline variant takes the mean of the group off the reward first. Source: arXiv
  2501.03262.

  Args:
    rewards: `[..., G]` rewards of completions.
    token_kl: `[..., G, T]` k1 of every token, nats.
    mask: `[..., G, T]` bool or 0/1.
    valid: `[..., G]` bool, the completions that could be scored; all by default.
    kl_coef: coefficient of the penalty, in units of reward per nat.
    group_baseline: whether to take the mean of the group off first.
    discount: of the return to go.

  Returns:
    `[..., G, T]` float32 advantages, 0 on padding and where not valid.
  """
  rewards, valid = _checked(rewards, valid)
  if group_baseline:
    rewards = _centred(rewards, valid)
  mask = jnp.asarray(mask, bool) & valid[..., None]
  chex.assert_equal_shape([token_kl, mask])
  token_rewards = -kl_coef * select(jnp.asarray(token_kl, jnp.float32), mask)
  token_rewards = token_rewards + at_last_token(rewards, mask)
  return whiten(discounted_returns(token_rewards, mask, discount), mask)


def at_last_token(rewards: Array, mask: Array) -> Array:
  """Rewards of completions as token rewards.

  Args:
    rewards: `[...]` one reward for each sequence.
    mask: `[..., T]` bool or 0/1.

  Returns:
    `[..., T]` float32: the reward at the last real token, 0 elsewhere.
  """
  mask = jnp.asarray(mask, bool)
  chex.assert_shape(rewards, mask.shape[:-1])
  slot = jnp.arange(mask.shape[-1])
  last = jnp.max(jnp.where(mask, slot, -1), axis=-1, keepdims=True)
  return jnp.where(slot == last, jnp.asarray(rewards, jnp.float32)[..., None], 0.0)
