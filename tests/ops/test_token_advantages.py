"""Advantages with other baselines, by token, and over the batch."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgax import advantages
from tests.strategies import GROUPS, TOKENS, bools, floats, masks, rewards

CLOSE = {"rtol": 1e-4, "atol": 1e-4}


@given(rewards(), floats(GROUPS[:1]))
def test_remax(r, greedy):
  np.testing.assert_allclose(advantages.remax(r, greedy), r - greedy[:, None], rtol=1e-6)


@given(rewards(), bools(GROUPS), st.integers(0, 5))
def test_opo(r, valid, seed):
  lengths = np.random.default_rng(seed).integers(1, 30, GROUPS)
  expected = np.zeros(GROUPS)
  for n in range(GROUPS[0]):
    members = [k for k in range(GROUPS[1]) if valid[n, k]]
    total = sum(int(lengths[n, k]) for k in members)
    baseline = sum(lengths[n, k] * float(r[n, k]) for k in members) / max(total, 1)
    for k in members:
      expected[n, k] = r[n, k] - baseline
  result = advantages.opo(np.where(valid, r, np.nan), lengths, valid)
  np.testing.assert_allclose(result, expected, **CLOSE)


@given(bools(GROUPS), bools(GROUPS))
def test_maxrl(right, valid):
  r = right.astype(np.float32)
  expected = np.zeros(GROUPS)
  for n in range(GROUPS[0]):
    members = [k for k in range(GROUPS[1]) if valid[n, k]]
    mean = sum(r[n, k] for k in members) / max(len(members), 1)
    for k in members:
      expected[n, k] = (r[n, k] - mean) / mean if mean else 0
  result = advantages.maxrl(np.where(valid, r, np.nan), valid)
  np.testing.assert_allclose(result, expected, **CLOSE)


@pytest.mark.parametrize("value", [0.35, 1.0, 100.1])
def test_all_equal_is_exactly_zero(value):
  r, lengths = np.full((1, 16), value, np.float32), np.arange(1, 17)[None]
  assert np.all(np.asarray(advantages.opo(r, lengths)) == 0)
  assert np.all(np.asarray(advantages.maxrl(r)) == 0)
  assert np.all(np.asarray(advantages.whiten(r, np.ones((1, 16)))) == 0)


def test_moving_average_follows():
  baseline, r = jnp.float32(0.0), np.array([[1.0, 0.0]])
  for expected in (0.25, 0.375, 0.4375):
    before = baseline
    result, baseline = advantages.moving_average(r, baseline, rate=0.5)
    np.testing.assert_allclose(result, r - before)
    assert baseline == pytest.approx(expected)
  result, unchanged = advantages.moving_average(r * np.nan, baseline, 0.5, np.zeros((1, 2)))
  assert unchanged == baseline and np.all(np.asarray(result) == 0)
  _, partly = advantages.moving_average(
    np.array([[1.0, np.nan]]), 0.0, 1.0, np.array([[1, 0]])
  )
  assert partly == 1.0
  with pytest.raises(ValueError, match="rate is 2"):
    advantages.moving_average(r, baseline, rate=2)


@given(floats((2, 3, 4)), masks((2, 3, 4)), st.integers(0, 9), st.sampled_from([0, 1]))
def test_process_supervision(step_rewards, step_mask, seed, ddof):
  rng = np.random.default_rng(seed)
  step_ends = rng.integers(-2, 9, (2, 3, 4))  # before the tokens, and beyond them, too
  mask = np.arange(6) < rng.integers(0, 7, (2, 3, 1))
  expected, stable = np.zeros(mask.shape), True
  for n in range(2):
    values = step_rewards[n][step_mask[n]].astype(np.float64)
    std = values.std(ddof=ddof) if len(values) > ddof else 0.0
    stable &= bool(std == 0 or std > 1e-2)
    for k, t in np.ndindex(3, 6):
      for s in range(4):
        if mask[n, k, t] and step_mask[n, k, s] and step_ends[n, k, s] >= t and std > 0:
          expected[n, k, t] += (step_rewards[n, k, s] - values.mean()) / (std + 1e-6)
  poisoned = np.where(step_mask, step_rewards, np.nan)
  result = advantages.grpo_process(poisoned, step_mask, step_ends, mask, ddof=ddof)
  if stable:  # normalizing magnifies rounding where the deviation is tiny
    np.testing.assert_allclose(result, expected, rtol=1e-2, atol=1e-3)
  assert np.all(np.asarray(result)[~mask] == 0)


def test_process_supervision_by_hand():
  # Two and one steps with rewards 1, 0 and 0: mean 1/3, deviation sqrt(2)/3.
  result = advantages.grpo_process(
    np.array([[[1.0, 0.0], [0.0, 9.0]]]),
    np.array([[[True, True], [True, False]]]),
    np.array([[[1, 3], [2, 0]]]),
    np.ones((1, 2, 4), bool),
    eps=0.0,
  )
  high, low = np.sqrt(2), -np.sqrt(0.5)
  both = high + low
  np.testing.assert_allclose(
    result[0], [[both, both, low, low], [low, low, low, 0]], rtol=1e-5, atol=1e-6
  )


def test_process_supervision_needs_no_array_of_steps_by_tokens():
  shape, tokens = (2, 8, 64), 4096
  rng = np.random.default_rng(0)
  arguments = (
    rng.normal(size=shape).astype(np.float32),
    np.ones(shape, bool),
    rng.integers(0, tokens, shape),
    np.ones((2, 8, tokens), bool),
  )
  compiled = jax.jit(advantages.grpo_process).lower(*arguments).compile()
  used = compiled.memory_analysis().temp_size_in_bytes
  assert used < 8 * np.prod((2, 8, tokens)) * 4  # with the array it would be 64 times


@given(floats(TOKENS), masks(), st.sampled_from([0, 1]), st.booleans())
def test_whiten(x, mask, ddof, shift_mean):
  result = np.asarray(advantages.whiten(np.where(mask, x, np.inf), mask, shift_mean, ddof))
  assert np.all(result[~mask] == 0)
  real = x[mask].astype(np.float64)
  if len(real) > 1 and real.std() > 1e-2:
    expected = (real - real.mean()) / (real.std(ddof=ddof) + 1e-8)
    expected = expected + (0 if shift_mean else real.mean())
    np.testing.assert_allclose(result[mask], expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("group_baseline", [False, True])
@given(floats(GROUPS), floats(TOKENS), masks(), st.sampled_from([0.0, 0.5]))
def test_reinforce_pp(group_baseline, r, token_kl, mask, kl_coef):
  valid = np.ones(GROUPS, bool)
  valid[0, 1] = False
  shaped = np.array(r, np.float64)
  if group_baseline:
    for n in range(GROUPS[0]):
      shaped[n] -= shaped[n][valid[n]].mean()
  real = mask & valid[..., None]
  returns = np.zeros(TOKENS)
  for index in np.ndindex(*GROUPS):
    n = int(real[index].sum())
    for t in range(n):
      returns[index][t] = shaped[index] - kl_coef * token_kl[index][t:n].sum(
        dtype=np.float64
      )
  result = advantages.reinforce_pp(
    np.where(valid, r, np.nan), token_kl, mask, valid, kl_coef, group_baseline
  )
  assert np.all(np.asarray(result)[~real] == 0)
  unmasked = returns[real]
  if len(unmasked) > 1 and unmasked.std() > 1e-2:
    expected = (unmasked - unmasked.mean()) / unmasked.std()
    np.testing.assert_allclose(np.asarray(result)[real], expected, rtol=1e-2, atol=2e-3)


def test_reinforce_pp_discount():
  mask = np.ones((1, 1, 3), bool)
  result = advantages.reinforce_pp(np.ones((1, 1)), np.zeros((1, 1, 3)), mask, discount=0.5)
  returns = np.array([0.25, 0.5, 1.0])
  np.testing.assert_allclose(
    result[0, 0], (returns - returns.mean()) / returns.std(), rtol=1e-4
  )


def test_reward_at_the_last_token():
  mask = np.array([[1, 1, 0], [0, 0, 0], [1, 1, 1]])
  result = advantages.at_last_token(np.array([5.0, 6.0, 7.0]), mask)
  np.testing.assert_array_equal(result, [[0, 5, 0], [0, 0, 0], [0, 0, 7]])


def test_gradients_are_finite():
  def total(r):
    terms = (advantages.opo(r, jnp.ones_like(r)), advantages.maxrl(r))
    return sum(jnp.sum(t**2) for t in terms) + jnp.sum(advantages.whiten(r, r > 0) ** 2)

  assert np.all(np.isfinite(jax.grad(total)(jnp.array([[1.0, 0.0], [0.0, 0.0]]))))


def test_maxrl_is_silent_where_the_mean_is_not_positive():
  # Divided by a mean below 0, the worst completion would be the best.
  rewards = np.array([[0.0, -1.0, 0.0, 0.0], [1.0, -1.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]])
  result = np.asarray(advantages.maxrl(rewards))
  assert np.all(result[:2] == 0) and result[2].tolist() == [3.0, -1.0, -1.0, -1.0]
