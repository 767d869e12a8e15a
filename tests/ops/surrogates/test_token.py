"""Token surrogates: a plain reference with its derivative, and the clip's corners."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgax import surrogates
from tests import references
from tests.ops.surrogates.losses import slope
from tests.strategies import floats

SIZE = (8,)


@given(
  floats(SIZE, -3, 0),
  floats(SIZE, -3, 0),
  floats(SIZE, -2, 2),
  st.sampled_from([(0.2, 0.2, None), (0.2, 0.28, None), (0.0, 0.5, 3.0), (1.0, 0.1, 1.5)]),
)
def test_clipped_matches_reference(logp, old_logp, advantages, bounds):
  low, high, dual = bounds

  def ours(x):
    return surrogates.clipped(x, old_logp, advantages, low, high, dual)

  pairs = [
    references.clipped(*map(float, token), low, high, dual)
    for token in zip(logp, old_logp, advantages, strict=True)
  ]
  loss, derivative = np.array(pairs).T
  np.testing.assert_allclose(ours(logp).loss, loss, rtol=1e-4, atol=1e-5)
  # At a corner either one-sided derivative is correct; skip a narrow band around it.
  ratio = np.exp(logp.astype(np.float64) - old_logp)
  corners = [1 - low, 1 + high] + ([dual] if dual else [])
  smooth = np.all([np.abs(ratio - c) > 1e-4 for c in corners], axis=0)
  np.testing.assert_allclose(
    slope(ours, logp)[smooth], derivative[smooth], rtol=1e-4, atol=1e-5
  )
  acts = np.asarray(ours(logp).clipped)
  assert np.all(np.asarray(slope(ours, logp))[acts] == 0)


@pytest.mark.parametrize(
  ("advantage", "ratio", "acts"),
  [
    (1.0, 1.3, True),
    (1.0, 1.1, False),
    (1.0, 0.5, False),
    (-1.0, 0.5, True),
    (-1.0, 0.9, False),
    (-1.0, 1.3, False),
    (0.0, 1.3, False),
  ],
)
def test_when_the_clip_acts(advantage, ratio, acts):
  one = jnp.log(jnp.array([ratio]))
  result = surrogates.clipped(one, jnp.zeros(1), jnp.array([advantage]))
  assert bool(result.clipped[0]) == acts
  gradient = slope(
    lambda x: surrogates.clipped(x, jnp.zeros(1), jnp.array([advantage])), one
  )
  expected = 0.0 if acts else -advantage * ratio
  assert gradient[0] == pytest.approx(expected, rel=1e-5)


def test_clip_higher_moves_one_bound_only():
  logp, zeros = jnp.log(jnp.array([1.25, 0.75])), jnp.zeros(2)
  advantages = jnp.array([1.0, -1.0])
  assert surrogates.clipped(logp, zeros, advantages).clipped.tolist() == [True, True]
  higher = surrogates.clipped(logp, zeros, advantages, clip_high=0.28)
  assert higher.clipped.tolist() == [False, True]
  lower = surrogates.clipped(logp, zeros, advantages, clip_low=0.3)
  assert lower.clipped.tolist() == [True, False]


@pytest.mark.parametrize("gap", [-1000.0, -50.0, 50.0, 1000.0])
@pytest.mark.parametrize("advantage", [-1.0, 1.0])
def test_extreme_log_ratios_are_finite_under_a_dual_clip(gap, advantage):
  def ours(x):
    return surrogates.clipped(x, jnp.zeros(1), jnp.array([advantage]), dual_clip=3.0)

  assert np.isfinite(ours(jnp.array([gap])).loss[0])
  assert np.isfinite(slope(ours, jnp.array([gap]))[0])


@pytest.mark.parametrize(
  ("options", "message"),
  [
    ({"clip_low": -0.1}, "clip_low is -0.1"),
    ({"clip_low": 1.5}, "clip_low is 1.5"),
    ({"clip_high": -1}, "clip_high is -1"),
    ({"clip_high": float("nan")}, "clip_high is nan"),
    ({"dual_clip": float("nan")}, "dual_clip is nan"),
    ({"dual_clip": 1.0}, "dual_clip is 1.0"),
  ],
)
def test_bad_bounds(options, message):
  with pytest.raises(ValueError, match=message):
    surrogates.clipped(jnp.zeros(1), jnp.zeros(1), jnp.zeros(1), **options)


def test_shapes_are_checked():
  with pytest.raises(AssertionError):
    surrogates.policy_gradient(jnp.zeros((2, 3)), jnp.zeros((2, 1)))
  with pytest.raises(AssertionError):
    surrogates.clipped(jnp.zeros((2, 3)), jnp.zeros(3), jnp.zeros((2, 3)))


OTHERS = {
  "unclipped": surrogates.unclipped,
  "cispo": lambda x, old, a: surrogates.cispo(x, old, a, 0.2, 0.3),
  "sapo": surrogates.sapo,
  "dppo": surrogates.dppo,
}


@pytest.mark.parametrize("name", OTHERS)
@given(floats(SIZE, -3, 0), floats(SIZE, -3, 0), floats(SIZE, -2, 2))
def test_others_match_reference(name, logp, old_logp, advantages):
  def ours(x):
    return OTHERS[name](x, old_logp, advantages)

  tokens = zip(logp, old_logp, advantages, strict=True)
  pairs = [references.token_surrogate(name, *map(float, token)) for token in tokens]
  loss, derivative = np.array(pairs).T
  np.testing.assert_allclose(ours(logp).loss, loss, rtol=1e-4, atol=1e-5)
  # DPPO's gradient jumps where a probability has moved by exactly its bound.
  change = np.exp(logp.astype(np.float64)) - np.exp(old_logp)
  smooth = np.abs(np.abs(change) - 0.2) > 1e-4
  np.testing.assert_allclose(
    slope(ours, logp)[smooth], derivative[smooth], rtol=1e-3, atol=1e-5
  )


@given(floats(SIZE, -3, 0), floats(SIZE, -3, 0), floats(SIZE, -2, 2))
def test_the_clip_only_ever_raises_the_loss(logp, old_logp, advantages):
  plain = surrogates.unclipped(logp, old_logp, advantages).loss
  result = surrogates.clipped(logp, old_logp, advantages)
  assert np.all(np.asarray(result.loss) >= np.asarray(plain))
  np.testing.assert_array_equal(result.loss[~result.clipped], plain[~result.clipped])


@pytest.mark.parametrize(
  ("call", "message"),
  [
    (lambda x: surrogates.cispo(x, x, x, 2.0, 0.1), "clip_low is 2.0"),
    (lambda x: surrogates.sapo(x, x, x, tau_pos=0), "tau_pos is 0"),
    (lambda x: surrogates.sapo(x, x, x, tau_neg=-1), "tau_neg is -1"),
    (lambda x: surrogates.dppo(x, x, x, delta=1.5), "delta is 1.5"),
  ],
)
def test_bad_settings_of_the_others(call, message):
  with pytest.raises(ValueError, match=message):
    call(jnp.zeros((1, 1)))
