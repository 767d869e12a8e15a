"""Entropy: the share of selected tokens, and a coefficient that seeks its target."""

import math

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgax import entropy
from tests.strategies import TOKENS, bools


@given(bools(TOKENS), st.sampled_from([0.1, 0.2, 1 / 3, 0.5, 0.99, 1.0]), st.integers(0, 9))
def test_the_share_of_selected_tokens(mask, fraction, seed):
  distinct = np.random.default_rng(seed).permutation(mask.size).reshape(mask.shape) + 0.5
  selected = np.asarray(entropy.top_fraction(jnp.asarray(distinct), mask, fraction))
  assert selected.sum() == math.ceil(fraction * mask.sum() - 1e-3)
  assert not np.any(selected & ~mask)
  if 0 < selected.sum() < mask.sum():  # all that are left out are lower
    assert distinct[mask & ~selected].max() < distinct[selected].min()


def test_a_fraction_of_one_is_the_mask_whatever_the_entropies():
  mask = np.array([True, True, False])
  selected = entropy.top_fraction(jnp.array([jnp.nan, -1.0, 3.0]), mask, 1.0)
  np.testing.assert_array_equal(selected, mask)


def test_masked_tokens_do_not_count():
  selected = entropy.top_fraction(jnp.array([jnp.inf, 1.0, 2.0]), np.array([0, 1, 1]), 0.5)
  np.testing.assert_array_equal(selected, [False, False, True])
  with pytest.raises(ValueError, match=r"fraction is 1\.5; it must be above 0"):
    entropy.top_fraction(jnp.ones(2), jnp.ones(2), 1.5)


def test_the_coefficient_moves_toward_its_target_within_bounds():
  controller = entropy.AdaptiveController(target=1.0, step=0.25, coef=0.1, limit=0.5)
  state = controller.init()
  assert controller.value(state) == 0  # no entropy is known yet
  values = []
  for measured in (0.5, 0.5, 0.5, 1.5, 0.9):
    state = controller.update(state, jnp.float32(measured), 8)
    values.append((float(state.coef), float(controller.value(state))))
  expected = [(0.35, 0.35), (0.5, 0.5), (0.5, 0.5), (0.25, 0.0), (0.5, 0.5)]
  np.testing.assert_allclose(values, expected, atol=1e-6)
  state = controller.update(state, jnp.float32(9.0), 8)
  for _ in range(5):
    state = controller.update(state, jnp.float32(9.0), 8)
  assert state.coef == 0


def test_entropies_settle_at_the_target():
  # An entropy that grows with the coefficient: the loop ends near the target.
  controller = entropy.AdaptiveController(target=1.0, step=0.01)
  state, measured = controller.init(), 0.2
  for _ in range(200):
    state = controller.update(state, jnp.float32(measured), 1)
    measured += 0.2 * (0.2 + 4.0 * float(state.coef) - measured)
  assert measured == pytest.approx(1.0, abs=0.15)


@pytest.mark.parametrize(
  "settings", [{"target": 0.0}, {"target": 1.0, "step": 0.0}, {"target": 1.0, "coef": 2.0}]
)
def test_bad_settings_are_named(settings):
  with pytest.raises(ValueError, match="target and step must be positive"):
    entropy.AdaptiveController(**settings)
