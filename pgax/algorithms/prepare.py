"""Rollout and feedback to a training batch: all that reduces over completions."""

import chex
import jax.numpy as jnp

from pgax.algorithms.spec import Algorithm, PositiveExamples
from pgax.ops import aggregation
from pgax.ops.masking import masked_sum, select
from pgax.types import Array, Batch, Feedback, Rollout, Scored


def prepare(
  algorithm: Algorithm,
  rollout: Rollout,
  feedback: Feedback,
  old_logp: Array,
  ref_logp: Array,
  *,
  kl_coef: Array | float = 0.0,
  baseline: Array | None = None,
  values: Array | None = None,
) -> Batch:
  """Turns a scored rollout into a training batch.

  This sees the whole global batch and is the only place that reduces over completions.
  What comes after it, minibatches, microbatches and devices, splits a weighted sum.

  Args:
    algorithm: the algorithm.
    rollout: `Rollout` of `[N, G, T]`.
    feedback: rewards of its completions; one that is not valid takes no part, nor does any
      of a prompt whose greedy completion could not be scored.
    old_logp: `[N, G, T]` nats, by the trainer's forward pass, before the update.
    ref_logp: `[N, G, T]` nats, under the reference policy.
    kl_coef: coefficient of the penalty inside the reward, where the algorithm has one.
    baseline: scalar, the algorithm's baseline from the steps before; None without one.
    values: `[N, G, T]` of the critic, before the update; None without one.

  Returns:
    A `Batch`, padding replaced by zeros.

  Raises:
    ValueError: if a part of the algorithm needs what it is not given.
  """
  chex.assert_equal_shape([rollout.tokens, rollout.mask, old_logp, ref_logp])
  chex.assert_shape([feedback.rewards, feedback.valid], rollout.tokens.shape[:2])
  scored = _scored(
    algorithm, rollout, feedback, old_logp, ref_logp, kl_coef, baseline, values
  )
  mask = scored.mask
  if algorithm.keep is not None:
    rewards = select(jnp.asarray(feedback.rewards, jnp.float32), scored.valid)
    kept = algorithm.keep(rewards, scored.valid, rollout)
    mask = mask & kept[..., None]
  advantages = algorithm.advantage(scored)
  if advantages.ndim == scored.rewards.ndim:  # one a completion: the same for its tokens
    advantages = jnp.broadcast_to(advantages[..., None], mask.shape)
  chex.assert_equal_shape([advantages, mask])
  old_logp, sample_logp = select(old_logp, mask), select(rollout.sample_logp, mask)
  correction = jnp.ones(mask.shape, jnp.float32)
  if algorithm.correction is not None:
    correction = select(algorithm.correction(old_logp, sample_logp, mask), mask)
  targets = imitation = None
  if algorithm.critic is not None:
    targets = select(algorithm.critic.target(scored), mask)
  if algorithm.imitation is not None:
    imitation = _imitation_weights(algorithm.imitation, feedback, mask)
  return Batch(
    prompt_tokens=rollout.prompt_tokens,
    prompt_mask=rollout.prompt_mask,
    tokens=rollout.tokens,
    mask=mask,
    rewards=scored.rewards,
    valid=scored.valid,
    advantages=select(advantages, mask),
    weights=algorithm.aggregation(mask),
    old_logp=old_logp,
    ref_logp=select(ref_logp, mask),
    correction=correction,
    imitation=imitation,
    old_values=None if scored.values is None else select(scored.values, mask),
    targets=targets,
  )


def _imitation_weights(part: PositiveExamples, feedback: Feedback, mask: Array) -> Array:
  right = select(feedback.rewards, feedback.valid, fill=-jnp.inf) > part.threshold
  return part.coef * aggregation.token_mean(mask & right[..., None])


def _scored(
  algorithm: Algorithm,
  rollout: Rollout,
  feedback: Feedback,
  old_logp: Array,
  ref_logp: Array,
  kl_coef: Array | float,
  baseline: Array | None,
  values: Array | None,
) -> Scored:
  """What the advantage function is given: rewards shaped and penalised, padding at 0."""
  valid, greedy = jnp.asarray(feedback.valid, bool), feedback.greedy_rewards
  if greedy is not None:
    valid = valid & jnp.isfinite(greedy)[..., None]
    greedy = select(jnp.asarray(greedy, jnp.float32), jnp.isfinite(greedy))
  mask = rollout.mask & valid[..., None]
  rewards = select(jnp.asarray(feedback.rewards, jnp.float32), valid)
  for shape in algorithm.shaping:
    rewards = select(shape(rewards, valid, rollout), valid)
  penalty = jnp.zeros(mask.shape, jnp.float32)
  if algorithm.kl is not None and algorithm.kl.placement == "reward":
    estimate = algorithm.kl.estimator(select(old_logp, mask), select(ref_logp, mask))
    penalty = select(kl_coef * estimate, mask)
  ends = feedback.step_ends
  return Scored(
    rewards=rewards - masked_sum(penalty, mask, axis=-1),
    valid=valid,
    mask=mask,
    penalty=penalty,
    baseline=baseline,
    values=None if values is None else select(values, mask),
    greedy_rewards=greedy,
    step_rewards=feedback.step_rewards,
    step_ends=None if ends is None else ends & mask,
  )
