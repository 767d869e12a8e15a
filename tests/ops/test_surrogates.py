"""Surrogates: a plain reference with its derivative, the clip's corners, extremes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgax import aggregation, surrogates
from tests import references
from tests.strategies import TOKENS, floats, masks

SIZE = (8,)


def _slope(function, logp):
  return jax.grad(lambda x: jnp.sum(function(x).loss))(jnp.asarray(logp))


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
  loss, slope = np.array(pairs).T
  np.testing.assert_allclose(ours(logp).loss, loss, rtol=1e-4, atol=1e-5)
  # At a corner either one-sided derivative is right; leave a hair's breadth around it.
  ratio = np.exp(logp.astype(np.float64) - old_logp)
  corners = [1 - low, 1 + high] + ([dual] if dual else [])
  smooth = np.all([np.abs(ratio - c) > 1e-4 for c in corners], axis=0)
  np.testing.assert_allclose(
    _slope(ours, logp)[smooth], slope[smooth], rtol=1e-4, atol=1e-5
  )
  acts = np.asarray(ours(logp).clipped)
  assert np.all(np.asarray(_slope(ours, logp))[acts] == 0)


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
  found = surrogates.clipped(one, jnp.zeros(1), jnp.array([advantage]))
  assert bool(found.clipped[0]) == acts
  slope = _slope(lambda x: surrogates.clipped(x, jnp.zeros(1), jnp.array([advantage])), one)
  expected = 0.0 if acts else -advantage * ratio
  assert slope[0] == pytest.approx(expected, rel=1e-5)


def test_clip_higher_moves_one_bound_only():
  logp, zeros = jnp.log(jnp.array([1.25, 0.75])), jnp.zeros(2)
  advantages = jnp.array([1.0, -1.0])
  assert surrogates.clipped(logp, zeros, advantages).clipped.tolist() == [True, True]
  higher = surrogates.clipped(logp, zeros, advantages, clip_high=0.28)
  assert higher.clipped.tolist() == [False, True]
  lower = surrogates.clipped(logp, zeros, advantages, clip_low=0.3)
  assert lower.clipped.tolist() == [True, False]


@given(floats(SIZE, -3, 0), floats(SIZE, -2, 2))
def test_at_ratio_one_it_is_the_policy_gradient(logp, advantages):
  clipped = _slope(lambda x: surrogates.clipped(x, logp, advantages), logp)
  plain = _slope(lambda x: surrogates.policy_gradient(x, advantages), logp)
  np.testing.assert_allclose(clipped, plain, rtol=1e-6)
  np.testing.assert_allclose(plain, -advantages, rtol=1e-6)


@pytest.mark.parametrize("gap", [-1000.0, -50.0, 50.0, 1000.0])
@pytest.mark.parametrize("advantage", [-1.0, 1.0])
@pytest.mark.parametrize("dual_clip", [None, 3.0])
def test_extreme_log_ratios_are_finite(gap, advantage, dual_clip):
  def ours(x):
    return surrogates.clipped(x, jnp.zeros(1), jnp.array([advantage]), dual_clip=dual_clip)

  assert np.isfinite(ours(jnp.array([gap])).loss[0])
  assert np.isfinite(_slope(ours, jnp.array([gap]))[0])


def test_no_gradient_into_data():
  def total(old_logp, advantages):
    first = surrogates.clipped(jnp.zeros(2), old_logp, advantages).loss
    return jnp.sum(first + surrogates.policy_gradient(jnp.ones(2), advantages).loss)

  for gradient in jax.grad(total, argnums=(0, 1))(jnp.full(2, 0.1), jnp.ones(2)):
    assert np.all(np.asarray(gradient) == 0)


@pytest.mark.parametrize(
  ("options", "told"),
  [
    ({"clip_low": -0.1}, "clip_low is -0.1"),
    ({"clip_low": 1.5}, "clip_low is 1.5"),
    ({"clip_high": -1}, "clip_high is -1"),
    ({"clip_high": float("nan")}, "clip_high is nan"),
    ({"dual_clip": float("nan")}, "dual_clip is nan"),
    ({"dual_clip": 1.0}, "dual_clip is 1.0"),
  ],
)
def test_bad_bounds(options, told):
  with pytest.raises(ValueError, match=told):
    surrogates.clipped(jnp.zeros(1), jnp.zeros(1), jnp.zeros(1), **options)


def test_shapes_are_checked():
  with pytest.raises(AssertionError):
    surrogates.policy_gradient(jnp.zeros((2, 3)), jnp.zeros((2, 1)))
  with pytest.raises(AssertionError):
    surrogates.clipped(jnp.zeros((2, 3)), jnp.zeros(3), jnp.zeros((2, 3)))


TOKEN_SURROGATES = {
  "cispo": lambda x, old, a: surrogates.cispo(x, old, a, 0.2, 0.3),
  "sapo": surrogates.sapo,
  "dppo": surrogates.dppo,
}


@pytest.mark.parametrize("name", TOKEN_SURROGATES)
@given(floats(SIZE, -3, 0), floats(SIZE, -3, 0), floats(SIZE, -2, 2))
def test_token_surrogates_match_reference(name, logp, old_logp, advantages):
  def ours(x):
    return TOKEN_SURROGATES[name](x, old_logp, advantages)

  tokens = zip(logp, old_logp, advantages, strict=True)
  pairs = [references.token_surrogate(name, *map(float, token)) for token in tokens]
  loss, slope = np.array(pairs).T
  np.testing.assert_allclose(ours(logp).loss, loss, rtol=1e-4, atol=1e-5)
  # DPPO's gradient jumps where a probability has moved by exactly its bound.
  moved = np.exp(logp.astype(np.float64)) - np.exp(old_logp)
  smooth = np.abs(np.abs(moved) - 0.2) > 1e-4
  np.testing.assert_allclose(
    _slope(ours, logp)[smooth], slope[smooth], rtol=1e-3, atol=1e-5
  )


@given(floats(TOKENS, -3, 0), floats(TOKENS, -3, 0), floats(TOKENS[:-1], -2, 2), masks())
def test_sequence_surrogates_match_reference(logp, old_logp, advantages, mask):
  poison = np.where(mask, 0, np.nan).astype(np.float32)
  everywhere = np.broadcast_to(advantages[..., None], TOKENS)
  weights = np.asarray(aggregation.sequence_mean(mask))

  def total(function):
    def loss(x):
      terms = function(x, old_logp + poison, everywhere, mask).loss
      return jnp.sum(weights * jnp.where(mask, terms, 0.0))

    return jax.value_and_grad(loss)(jnp.asarray(logp))

  def plain(function):
    value, gradient = 0.0, np.zeros(TOKENS)
    sequences = max(sum(1 for n in mask.sum(-1).flat if n), 1)
    for index in np.ndindex(*TOKENS[:-1]):
      n = int(mask[index].sum())
      if n:
        some = [list(map(float, x[index][:n])) for x in (logp, old_logp)]
        loss, slope = function(*some, float(advantages[index]))
        value += loss / sequences
        gradient[index][:n] = np.array(slope) / sequences
    return value, gradient

  low, high = 0.2, 0.3
  gspo = total(lambda *xs: surrogates.gspo(*xs, low, high))
  for ours, theirs in zip(
    gspo, plain(lambda *xs: references.gspo(*xs, low, high)), strict=True
  ):
    np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-4)
  # With one advantage for a whole sequence the token form has the same gradient.
  by_token = total(lambda *xs: surrogates.gspo_token(*xs, low, high))
  np.testing.assert_allclose(by_token[1], gspo[1], rtol=1e-3, atol=1e-4)
  gmpo = total(surrogates.gmpo)
  for ours, theirs in zip(gmpo, plain(lambda *xs: references.gmpo(*xs, 0.4)), strict=True):
    np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
  "function",
  [
    *TOKEN_SURROGATES.values(),
    lambda x, old, a: surrogates.gspo(x, old, a, np.ones((2, 3)), 0.2, 0.2),
    lambda x, old, a: surrogates.gspo_token(x, old, a, np.ones((2, 3)), 0.2, 0.2),
    lambda x, old, a: surrogates.gmpo(x, old, a, np.ones((2, 3))),
  ],
)
def test_on_policy_and_at_extremes(function):
  logp = -np.random.default_rng(0).random((2, 3)).astype(np.float32)
  advantages = np.array([[1.0] * 3, [-0.5] * 3], np.float32)
  found = _slope(lambda x: function(x, logp, advantages), logp)
  np.testing.assert_allclose(found, -advantages, rtol=1e-5)
  for gap in (-1000.0, -50.0, 50.0, 1000.0):
    shifted = logp + np.float32(gap)
    assert np.all(np.isfinite(function(shifted, logp, advantages).loss))
    assert np.all(np.isfinite(_slope(lambda x: function(x, logp, advantages), shifted)))


@pytest.mark.parametrize(
  ("call", "told"),
  [
    (lambda x: surrogates.cispo(x, x, x, 2.0, 0.1), "clip_low is 2.0"),
    (lambda x: surrogates.gspo(x, x, x, x, 0.1, -0.1), "clip_high is -0.1"),
    (lambda x: surrogates.gmpo(x, x, x, x, clip=-1), "clip is -1"),
    (lambda x: surrogates.sapo(x, x, x, tau_pos=0), "tau_pos is 0"),
    (lambda x: surrogates.sapo(x, x, x, tau_neg=-1), "tau_neg is -1"),
    (lambda x: surrogates.dppo(x, x, x, delta=1.5), "delta is 1.5"),
  ],
)
def test_bad_settings_of_the_others(call, told):
  with pytest.raises(ValueError, match=told):
    call(jnp.zeros((1, 1)))
