"""From a rollout and its rewards to a batch: advantages, weights and exclusions."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pgax import advantages, aggregation, algorithms
from pgax.types import Feedback
from tests import arrays

ROLLOUT, FEEDBACK, VALUES = arrays.rollout(), arrays.feedback(), arrays.values()
REWARDS, VALID = FEEDBACK.rewards, FEEDBACK.valid
LOGP = ROLLOUT.logp
REF = LOGP - 0.1 * ROLLOUT.action_mask


def prepare(algorithm, feedback=FEEDBACK, logp=LOGP, ref_logp=REF, values=VALUES, **more):
  values = values if algorithm.critic else None
  return algorithms.prepare(
    algorithm, ROLLOUT, feedback, logp, ref_logp, values=values, **more
  )


def test_sequence_advantages_reach_every_real_token():
  batch = prepare(algorithms.dr_grpo())
  expected = advantages.dr_grpo(REWARDS)[..., None] * ROLLOUT.action_mask
  np.testing.assert_allclose(batch.advantages, expected, rtol=1e-6)
  assert batch.weights.shape == ROLLOUT.action_mask.shape
  limit = ROLLOUT.action_mask.shape[-1]
  np.testing.assert_allclose(
    batch.weights, aggregation.fixed_length(ROLLOUT.action_mask, limit)
  )


def test_token_advantages_are_used():
  def by_position(inputs):
    return jnp.broadcast_to(
      jnp.arange(inputs.action_mask.shape[-1]), inputs.action_mask.shape
    )

  algorithm = dataclasses.replace(algorithms.grpo(), advantage=by_position)
  batch = prepare(algorithm)
  np.testing.assert_allclose(batch.advantages, np.arange(6) * ROLLOUT.action_mask)


def test_penalty_in_the_reward():
  algorithm = algorithms.rloo(kl_coef=0.5)
  batch = prepare(algorithm, kl_coef=0.5)
  lengths = np.asarray(ROLLOUT.action_mask).sum(-1)
  shaped = np.asarray(REWARDS) - 0.5 * 0.1 * lengths
  expected = np.asarray(advantages.rloo(shaped))[..., None] * ROLLOUT.action_mask
  np.testing.assert_allclose(batch.advantages, expected, rtol=1e-4, atol=1e-5)
  # A penalty in the loss does not change the reward.
  algorithm = algorithms.grpo(kl_coef=0.5)
  batch = prepare(algorithm, kl_coef=0.5)
  expected = np.asarray(advantages.grpo(REWARDS))[..., None] * ROLLOUT.action_mask
  np.testing.assert_allclose(batch.advantages, expected, rtol=1e-5)


def test_baselines_of_opo_and_maxrl():
  lengths = np.asarray(ROLLOUT.action_mask).sum(-1)
  for algorithm, expected in (
    (algorithms.opo(), advantages.opo(REWARDS, lengths)),
    (algorithms.maxrl(), advantages.maxrl(REWARDS)),
  ):
    batch = prepare(algorithm)
    np.testing.assert_allclose(
      batch.advantages,
      np.asarray(expected)[..., None] * ROLLOUT.action_mask,
      rtol=1e-5,
      atol=1e-6,
    )


@pytest.mark.parametrize("preset", algorithms.presets.ALL)
def test_unscorable_and_padding_hold_anything(preset):
  valid = np.array(VALID)
  valid[0, 1] = valid[2] = False
  clean = prepare(preset(), FEEDBACK.replace(valid=valid), kl_coef=0.1)
  poison = np.where(np.asarray(ROLLOUT.action_mask) & valid[..., None], 0, np.nan)
  dirty = prepare(
    preset(),
    FEEDBACK.replace(
      rewards=np.where(valid, REWARDS, np.nan),
      valid=valid,
      step_rewards=FEEDBACK.step_rewards + poison,
    ),
    LOGP + poison,
    REF + poison,
    VALUES + poison,
    kl_coef=0.1,
  )
  for actual, expected in zip(jax.tree.leaves(dirty), jax.tree.leaves(clean), strict=True):
    np.testing.assert_array_equal(actual, expected)
  assert not np.any(np.asarray(dirty.loss_mask)[~valid])
  assert np.all(np.asarray(dirty.weights)[~valid] == 0)


def test_shapes_are_checked():
  with pytest.raises(AssertionError):
    prepare(algorithms.grpo(), FEEDBACK.replace(rewards=REWARDS[:2]))
  alone = jax.tree.map(lambda x: x[:, :1] if x.ndim == 3 else x, ROLLOUT)
  with pytest.raises(ValueError, match="group size is 1"):
    algorithms.prepare(
      algorithms.rloo(),
      alone,
      Feedback(REWARDS[:, :1], VALID[:, :1]),
      LOGP[:, :1],
      REF[:, :1],
    )


@pytest.mark.parametrize("constant", [0.0, 5.0])
def test_expert_iteration_is_the_likelihood_of_what_was_right(constant):
  algorithm = algorithms.expert_iteration(0.25, constant)
  valid = VALID.at[0, 1].set(False)
  wild = jnp.where(valid, REWARDS, jnp.nan)
  batch = prepare(algorithm, FEEDBACK.replace(rewards=wild, valid=valid))
  right = np.asarray(valid & (REWARDS > 0.25))
  assert 0 < right.sum() < valid.sum()
  mask = np.asarray(ROLLOUT.action_mask) & right[..., None]
  np.testing.assert_array_equal(batch.loss_mask, mask)
  total, _ = algorithms.loss(algorithm, LOGP, batch)
  # Masked normalization: each completion's sum over the constant, mean over completions.
  sums = np.where(mask, LOGP, 0).sum(-1)
  expected = sums[right].mean() / constant if constant else sums.sum() / mask.sum()
  assert total == pytest.approx(-expected, rel=1e-5)
  nothing = prepare(algorithm, FEEDBACK.replace(rewards=jnp.zeros_like(REWARDS)))
  total, _ = algorithms.loss(algorithm, LOGP, nothing)
  assert total == 0 and not np.any(nothing.loss_mask)
