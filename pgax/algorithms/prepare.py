"""Rollout and rewards to a training batch: advantages and weights of the global batch."""

import chex
import jax.numpy as jnp

from pgax.algorithms.spec import Algorithm
from pgax.ops.masking import masked_sum, select
from pgax.types import Array, Batch, Rollout, Scored


def prepare(
  algorithm: Algorithm,
  rollout: Rollout,
  rewards: Array,
  valid: Array,
  old_logp: Array,
  ref_logp: Array,
  kl_coef: Array | float = 0.0,
) -> Batch:
  """Turns a scored rollout into a training batch.

  This sees the whole global batch and is the only place that reduces over completions.
  What comes after it, minibatches, microbatches and devices, splits a weighted sum.

  Args:
    algorithm: the algorithm.
    rollout: `Rollout` of `[N, G, T]`.
    rewards: `[N, G]`; may hold anything where not valid.
    valid: `[N, G]` bool, false where a completion could not be scored: it takes no part.
    old_logp: `[N, G, T]` nats, by the trainer's forward pass, before the update.
    ref_logp: `[N, G, T]` nats, under the reference policy.
    kl_coef: coefficient of the penalty inside the reward, where the algorithm has one.

  Returns:
    A `Batch`, padding replaced by zeros.
  """
  chex.assert_equal_shape([rollout.tokens, rollout.mask, old_logp, ref_logp])
  chex.assert_shape([rewards, valid], rollout.tokens.shape[:2])
  valid = jnp.asarray(valid, bool)
  mask = rollout.mask & valid[..., None]
  old_logp, ref_logp = select(old_logp, mask), select(ref_logp, mask)
  rewards = select(jnp.asarray(rewards, jnp.float32), valid)
  if algorithm.kl is not None and algorithm.kl.placement == "reward":
    divergence = masked_sum(algorithm.kl.estimator(old_logp, ref_logp), mask, axis=-1)
    rewards = rewards - kl_coef * divergence
  advantages = algorithm.advantage(Scored(rewards, valid, mask))
  if advantages.ndim == rewards.ndim:  # one per completion: the same for all its tokens
    advantages = jnp.broadcast_to(advantages[..., None], mask.shape)
  chex.assert_equal_shape([advantages, mask])
  return Batch(
    prompt_tokens=rollout.prompt_tokens,
    prompt_mask=rollout.prompt_mask,
    tokens=rollout.tokens,
    mask=mask,
    advantages=select(advantages, mask),
    weights=algorithm.aggregation(mask),
    old_logp=old_logp,
    ref_logp=ref_logp,
  )
