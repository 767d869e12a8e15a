"""Shaping of rewards: worked numbers, a plain reference, and rejected settings."""

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgax import advantages
from pgax.ops import shaping
from tests.strategies import GROUPS, bools, rewards


def test_overlong_worked_number():
  lengths = np.array([1, 16384, 16385, 18432, 20480, 20481, 99999])
  result = shaping.overlong(lengths, 20480, 4096)
  np.testing.assert_allclose(result, [0, 0, -1 / 4096, -0.5, -1, -1, -1], atol=1e-7)


def plain_overlong(length, limit, buffer):
  if length <= limit - buffer:
    return 0.0
  return ((limit - buffer) - length) / buffer if length <= limit else -1.0


@given(st.lists(st.integers(0, 80), min_size=6, max_size=6), st.data())
def test_overlong_matches_reference(lengths, data):
  limit = data.draw(st.integers(1, 60))
  buffer = data.draw(st.integers(1, limit))
  expected = [plain_overlong(length, limit, buffer) for length in lengths]
  result = shaping.overlong(np.array(lengths), limit, buffer)
  np.testing.assert_allclose(result, expected, rtol=1e-6, atol=1e-7)


@given(rewards(), bools(GROUPS), st.sampled_from([0.0, 1.0, 2.5]))
def test_missing_eos(r, finished, penalty):
  penalized = np.asarray(shaping.missing_eos(r, finished, penalty))
  replaced = np.asarray(shaping.missing_eos(r, finished, penalty, replace=True))
  for index in np.ndindex(*GROUPS):
    if finished[index]:
      assert penalized[index] == replaced[index] == r[index]
    else:
      assert penalized[index] == pytest.approx(
        float(r[index]) - penalty, rel=1e-6, abs=1e-6
      )
      assert replaced[index] == -penalty


def test_a_truncated_completion_needs_no_score():
  r, finished = np.array([np.nan, 0.5, np.nan]), np.array([0, 1, 1])
  result = shaping.missing_eos(r, finished, 1.0, replace=True)
  np.testing.assert_array_equal(result, [-1.0, 0.5, np.nan])  # the last has no score still
  np.testing.assert_array_equal(
    shaping.missing_eos(r, finished, 1.0), [np.nan, 0.5, np.nan]
  )


@given(rewards(), st.sampled_from([(0.0, 1.0), (-3.0, 2.0), (-0.5, 0.5)]))
def test_rescale_and_clip(r, bounds):
  low, high = bounds
  expected = (r.astype(np.float64) - low) / (high - low)
  np.testing.assert_allclose(shaping.rescale(r, low, high), expected, rtol=1e-5, atol=1e-6)
  limited = np.asarray(shaping.clip(r, low, high))
  # Equal but for numbers below the smallest normal one, which XLA flushes to 0.
  np.testing.assert_allclose(limited, np.clip(r, low, high), rtol=0, atol=1e-37)
  inside = np.asarray(shaping.rescale(limited, low, high))
  assert np.all((inside >= 0) & (inside <= 1))


def test_an_affine_map_leaves_group_advantages_in_place():
  r = np.array([[0.9, 0.3, -0.1, 0.7]])
  result = shaping.rescale(r, -1.0, 3.0)
  np.testing.assert_allclose(
    4 * advantages.rloo(result), advantages.rloo(r), rtol=1e-5, atol=1e-6
  )
  np.testing.assert_allclose(
    advantages.grpo(result, eps=0.0), advantages.grpo(r, eps=0.0), rtol=1e-5, atol=1e-6
  )


def test_a_reward_without_a_score_stays_without():
  for result in (shaping.clip(np.nan, 0, 1), shaping.rescale(np.nan, 0, 1)):
    assert np.isnan(result)


def test_rewards_are_not_cast_to_int():
  r = np.array([0, 1, 3])
  for result in (
    shaping.missing_eos(r, r > 0, 0.25),
    shaping.rescale(r, 0, 2),
    shaping.clip(r, 0.5, 2.5),
    shaping.overlong(r, 3, 2),
  ):
    assert result.dtype == np.float32
  np.testing.assert_allclose(shaping.missing_eos(r, r > 0, 0.25), [-0.25, 1, 3])


def test_limits_are_static_and_other_arguments_may_be_traced():
  result = jax.jit(shaping.missing_eos, static_argnums=(2, 3))(np.ones(2), np.zeros(2), 0.5)
  np.testing.assert_allclose(result, 0.5)


@pytest.mark.parametrize(
  ("call", "message"),
  [
    (lambda r: shaping.missing_eos(r, r, -1.0), "penalty is -1.0; it must be at least 0"),
    (lambda r: shaping.missing_eos(r, r, float("nan")), "penalty is nan"),
    (lambda r: shaping.overlong(r, 10, 0), "buffer is 0 and max_length is 10"),
    (lambda r: shaping.overlong(r, 10, 11), "buffer is 11 and max_length is 10"),
    (lambda r: shaping.overlong(r, 0, 0), "buffer is 0 and max_length is 0"),
    (lambda r: shaping.rescale(r, 1.0, 1.0), "low is 1.0 and high is 1.0"),
    (lambda r: shaping.rescale(r, float("nan"), 1.0), "low is nan"),
    (lambda r: shaping.clip(r, 2.0, 1.0), "low is 2.0 and high is 1.0"),
  ],
)
def test_bad_settings(call, message):
  with pytest.raises(ValueError, match=message):
    call(np.ones(3))


def test_shapes_are_checked():
  with pytest.raises(AssertionError):
    shaping.missing_eos(np.ones((2, 3)), np.ones(3), 1.0)
