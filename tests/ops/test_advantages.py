"""Group and batch advantages: worked numbers, identities, and a plain reference."""

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pgax import advantages
from tests import references
from tests.strategies import GROUPS, bools, floats, rewards

GROUP_RELATIVE = [advantages.rloo, advantages.grpo, advantages.dr_grpo]


def test_worked_group():
  group = np.array([0.9, 0.3, -0.1, 0.7])
  np.testing.assert_allclose(
    advantages.grpo(group), [1.1717, -0.3906, -1.4321, 0.6509], atol=1e-4
  )


def test_one_right_of_four():
  root = np.sqrt(3)
  expected = [root, -1 / root, -1 / root, -1 / root]
  np.testing.assert_allclose(
    advantages.grpo(np.array([1, 0, 0, 0]), eps=0.0), expected, rtol=1e-6
  )


@pytest.mark.parametrize("value", [0.0, 0.35, 1.0, 100.1, -7.3, 1e30])
@pytest.mark.parametrize("size", [2, 3, 8, 16])
@pytest.mark.parametrize(
  "function",
  [*GROUP_RELATIVE, advantages.batch_mean, lambda r: advantages.grpo(r, eps=0.0)],
)
def test_all_equal_is_exactly_zero(function, size, value):
  assert np.all(np.asarray(function(np.full(size, value, np.float32))) == 0.0)


@given(rewards(), bools(GROUPS), st.sampled_from([0, 1]), st.sampled_from([1e-6, 1e-2]))
def test_matches_reference(r, valid, ddof, eps):
  poisoned = np.where(valid, r, np.nan)
  cases = [
    (advantages.rloo(poisoned, valid), references.rloo),
    (advantages.dr_grpo(poisoned, valid), references.dr_grpo),
  ]
  for ours, formula in cases:
    np.testing.assert_allclose(
      ours, references.group(r, valid, formula), rtol=1e-4, atol=2e-5
    )
  # Normalizing magnifies rounding where the deviation is tiny, so require a larger one.
  spread = np.array(
    [np.ptp(row[ok]) if ok.any() else 0 for row, ok in zip(r, valid, strict=True)]
  )
  stable = (spread == 0) | (spread > 1e-2)
  ours = advantages.grpo(poisoned, valid, ddof, eps)
  plain = references.group(r, valid, lambda v: references.grpo(v, ddof, eps))
  np.testing.assert_allclose(ours[stable], plain[stable], rtol=1e-3, atol=1e-4)


@given(rewards(), bools(GROUPS))
def test_batch_mean_matches_reference(r, valid):
  ours = advantages.batch_mean(np.where(valid, r, np.inf), valid)
  plain = references.group(r.reshape(1, -1), valid.reshape(1, -1), references.dr_grpo)
  np.testing.assert_allclose(ours, plain.reshape(GROUPS), rtol=1e-4, atol=2e-5)


def test_rloo_is_dr_grpo_scaled():
  r = np.random.default_rng(0).normal(size=GROUPS)
  scale = GROUPS[-1] / (GROUPS[-1] - 1)
  np.testing.assert_allclose(
    advantages.rloo(r), scale * advantages.dr_grpo(r), rtol=1e-5, atol=1e-6
  )


LENGTHS = np.array([3, 1, 4, 2])
RELATIVE = {
  "rloo": advantages.rloo,
  "grpo": lambda r: advantages.grpo(r, eps=0.0),
  "dr_grpo": advantages.dr_grpo,
  "opo": lambda r: advantages.opo(r, np.broadcast_to(LENGTHS, r.shape)),
  "maxrl": advantages.maxrl,
}
some_rewards = hnp.arrays(
  np.float32, GROUPS, elements=st.sampled_from([0.0, 0.25, 1.0, 2.5])
)


@pytest.mark.parametrize("name", RELATIVE)
@given(some_rewards, st.permutations(range(GROUPS[-1])), floats((GROUPS[0], 1)))
def test_identities(name, r, order, shift):
  function = RELATIVE[name]
  result = np.asarray(function(r))
  close = {"rtol": 1e-3, "atol": 1e-4}
  if name != "maxrl":  # its scale is the mean, which a shift moves
    np.testing.assert_allclose(function(r + shift), result, **close)
  factor = 1 if name in ("grpo", "maxrl") else 4
  np.testing.assert_allclose(function(4 * r), factor * result, **close)
  if name == "opo":  # its baseline is the mean over tokens
    np.testing.assert_allclose((result * LENGTHS).sum(-1), 0, atol=1e-3)
  else:
    np.testing.assert_allclose(result.sum(-1), 0, atol=1e-3)
    np.testing.assert_allclose(function(r[:, order]), result[:, order], **close)
  np.testing.assert_allclose(function(r[::-1]), result[::-1], **close)


def test_opo_of_a_permuted_group_is_permuted():
  r, order = np.random.default_rng(0).normal(size=4), np.array([2, 0, 3, 1])
  np.testing.assert_allclose(
    advantages.opo(r[order], LENGTHS[order]), advantages.opo(r, LENGTHS)[order], rtol=1e-5
  )


@pytest.mark.parametrize("function", [*GROUP_RELATIVE, advantages.batch_mean])
def test_unscorable_takes_no_part(function):
  r = np.array([[1.0, 0.0, 0.5, np.nan], [np.nan] * 4, [np.nan, 3.0, np.inf, np.nan]])
  valid = np.isfinite(r)
  result = np.asarray(function(r, valid))
  assert np.all(np.isfinite(result)) and np.all(result[~valid] == 0)
  if function is not advantages.batch_mean:
    np.testing.assert_allclose(result[0, :3], function(r[0, :3]), rtol=1e-6)
    assert np.all(result[1:] == 0)  # nothing, or nothing to compare with


@pytest.mark.parametrize("function", [*GROUP_RELATIVE, advantages.batch_mean])
def test_jit_vmap_and_gradient(function):
  r = np.array([[1.0, 0.0, 0.0, 0.25], [0.5, 0.5, 0.5, 0.5]], np.float32)
  if function is not advantages.batch_mean:
    np.testing.assert_allclose(jax.vmap(function)(r), function(r), rtol=1e-6)
  np.testing.assert_allclose(jax.jit(function)(r), function(r), rtol=1e-5, atol=1e-7)
  gradient = jax.grad(lambda x: (function(x) ** 2).sum())(r)
  assert np.all(np.isfinite(gradient))


def test_group_of_one():
  with pytest.raises(ValueError, match="group size is 1.*at least 2"):
    advantages.rloo(np.ones((3, 1)))
  assert np.all(np.asarray(advantages.grpo(np.array([[5.0], [2.0]]), ddof=1)) == 0)
  assert np.all(np.asarray(advantages.dr_grpo(np.array([[5.0], [2.0]]))) == 0)


def test_bad_arguments():
  with pytest.raises(ValueError, match="ddof is 2.*0 .*1"):
    advantages.grpo(np.ones(3), ddof=2)
  with pytest.raises(ValueError, match="eps is -1"):
    advantages.grpo(np.ones(3), eps=-1)
  with pytest.raises(ValueError, match="group axis"):
    advantages.dr_grpo(np.float32(1))
  with pytest.raises(AssertionError):
    advantages.grpo(np.ones((2, 3)), valid=np.ones((2, 1)))


def test_rewards_are_not_cast_to_int():
  assert advantages.dr_grpo(np.array([0, 1])).dtype == np.float32
  np.testing.assert_allclose(advantages.dr_grpo(np.array([0, 1])), [-0.5, 0.5])
