"""Scales of rewards: of the batch, and of each component."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgax import advantages
from tests.strategies import rewards as reward_arrays

CLOSE = {"rtol": 1e-4, "atol": 1e-4}


@given(reward_arrays(), st.floats(0.5, 20.0), st.floats(-5.0, 5.0))
def test_the_scale_of_the_batch_takes_out_scale_and_shift(rewards, scale, shift):
  plain = advantages.batch_scaled(rewards, eps=0.0)
  changed = advantages.batch_scaled(scale * rewards + shift, eps=0.0)
  if np.std(rewards) > 1e-2:
    # Rewards are rounded at their size, and the division by their deviation scales that up.
    size = np.max(np.abs(rewards)) + abs(shift) / scale
    rounding = 32 * np.finfo(np.float32).eps * size / np.std(rewards)
    np.testing.assert_allclose(changed, plain, rtol=1e-5, atol=1e-5 + rounding)


def test_one_group_is_grpo_and_several_share_a_scale():
  rewards = jnp.array([[1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 0.0, 0.0]])
  np.testing.assert_allclose(
    advantages.batch_scaled(rewards[:1]), advantages.grpo(rewards[:1]), rtol=1e-6
  )
  expected = advantages.dr_grpo(rewards) / (jnp.std(rewards) + 1e-6)
  np.testing.assert_allclose(advantages.batch_scaled(rewards), expected, rtol=1e-6)


def test_what_is_not_valid_is_not_in_the_scale():
  rewards = jnp.array([[1.0, 0.0, jnp.nan], [3.0, 1.0, 100.0]])
  valid = jnp.array([[1, 1, 0], [1, 1, 0]], bool)
  ours = advantages.batch_scaled(rewards, valid)
  np.testing.assert_allclose(
    ours[:, :2], advantages.batch_scaled(rewards[:, :2]), rtol=1e-6
  )
  assert np.all(np.asarray(ours)[:, 2] == 0)


def test_components_are_normalized_before_they_are_added():
  # Sums of 1 and of 1: GRPO sees no difference between getting either component.
  components = jnp.array([[[1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [1.0, 1.0]]])
  summed = advantages.grpo(components.sum(-1))[0]
  assert summed[0] == summed[1]
  ours = advantages.gdpo(components)[0]
  assert ours[0] != ours[1]
  terms = [advantages.grpo(components[..., k]) for k in range(2)]
  expected = advantages.whiten(terms[0] + terms[1], jnp.ones((1, 4)))
  np.testing.assert_allclose(ours, expected[0], **CLOSE)


def test_no_component_outweighs_another_by_its_scale():
  rng = np.random.default_rng(0)
  components = jnp.asarray(rng.normal(size=(3, 4, 2)), jnp.float32)
  scaled = components * jnp.array([1.0, 50.0])
  ours, theirs = (advantages.gdpo(x, eps=0.0) for x in (scaled, components))
  np.testing.assert_allclose(ours, theirs, **CLOSE)
  weighted = advantages.gdpo(components, weights=(1.0, 50.0))
  assert np.abs(weighted - theirs).max() > 0.1


def test_one_component_is_grpo_whitened():
  rewards = jnp.asarray(np.random.default_rng(1).normal(size=(3, 4)), jnp.float32)
  expected = advantages.whiten(advantages.grpo(rewards), jnp.ones((3, 4)))
  np.testing.assert_allclose(advantages.gdpo(rewards[..., None]), expected, **CLOSE)


@given(st.floats(0.1, 20.0), st.floats(-5.0, 5.0))
def test_components_that_cancel_are_no_signal(scale, shift):
  one = jnp.array([[1.0, 0.0, 0.0], [0.3, 0.2, 0.9]])
  components = jnp.stack([one, shift - scale * one], axis=-1)
  assert np.all(np.asarray(advantages.gdpo(components)) == 0)


@pytest.mark.parametrize("weight", [float("nan"), float("inf")])
def test_weights_of_components_are_finite(weight):
  with pytest.raises(ValueError, match="finite weight"):
    advantages.gdpo(jnp.ones((2, 2, 2)), weights=(1.0, weight))
