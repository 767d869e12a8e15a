"""Losses over pairs: a plain loop over them, the clip, and the optimum of CoPG."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgax import surrogates
from tests import references
from tests.ops.surrogates.losses import BETA, GROUP, in_batch, plain_groups, random_batch
from tests.strategies import GROUPS, TOKENS, floats, masks, rewards

FORMS = {"p3o": "separate", "p3o_joint": "joint"}
PLAIN = {
  "copg": lambda x, r: references.copg(x, r, BETA),
  **{
    name: lambda x, r, f=form: references.p3o(x, r, 0.2, f) for name, form in FORMS.items()
  },
}


def at_a_corner(name, logp, old_logp, mask):
  """Whether a clip of P3O is so near that either one-sided derivative is correct."""
  log_ratio = np.sum((logp.astype(np.float64) - old_logp) * mask, axis=-1)
  if name == "p3o":
    near = np.abs(np.abs(np.exp(log_ratio) - 1) - 0.2)
  else:
    near = np.abs(np.abs(log_ratio[..., :, None] - log_ratio[..., None, :]) - 0.2)
  return name != "copg" and bool(np.any(near < 1e-4))


@pytest.mark.parametrize("name", PLAIN)
@given(
  floats(TOKENS, -0.25, 0), floats(TOKENS, -0.25, 0), rewards() | floats(GROUPS), masks()
)
def test_matches_reference(name, logp, old_logp, r, mask):
  value, gradient, _ = in_batch(GROUP[name], logp, old_logp, r, mask)
  expected = plain_groups(PLAIN[name], logp, old_logp, r, mask)
  scale = 1 + float(np.ptp(r)) ** 2
  np.testing.assert_allclose(value, expected[0], rtol=1e-3, atol=1e-5 * scale)
  if not at_a_corner(name, logp, old_logp, mask):
    np.testing.assert_allclose(gradient, expected[1], rtol=1e-3, atol=1e-5 * scale)


def plain_clipped(name, logp, old_logp, r, mask):
  """Completions whose gradient the clip takes in every pair with different rewards."""
  log_ratio = np.sum((logp.astype(np.float64) - old_logp) * mask, axis=-1)
  out = np.zeros(GROUPS, bool)
  for n, i in np.ndindex(*GROUPS):
    acts = []
    for j in range(GROUPS[1]):
      sign = np.sign(r[n, i] - r[n, j])
      if mask[n, i].any() and mask[n, j].any() and sign:
        if name == "p3o":
          acts.append(sign * (np.exp(log_ratio[n, i]) - 1) > 0.2)
        else:
          acts.append(sign * (log_ratio[n, i] - log_ratio[n, j]) > 0.2)
    out[n, i] = bool(acts) and all(acts)
  return out[..., None] & mask


@pytest.mark.parametrize("name", FORMS)
@given(
  floats(TOKENS, -0.25, 0), floats(TOKENS, -0.25, 0), rewards() | floats(GROUPS), masks()
)
def test_a_clipped_completion_has_no_gradient(name, logp, old_logp, r, mask):
  _, gradient, acts = in_batch(GROUP[name], logp, old_logp, r, mask)
  assert np.all(np.asarray(gradient)[acts] == 0)
  if not at_a_corner(name, logp, old_logp, mask):
    np.testing.assert_array_equal(acts, plain_clipped(name, logp, old_logp, r, mask))


def two(first, second, r=(1.0, 0.0), form="separate"):
  """Loss of each of two one-token completions, from log-ratios; the old ones are 0."""
  logp = np.array([[[first], [second]]], np.float32)
  result = surrogates.p3o(
    logp, np.zeros_like(logp), np.array([r]), np.ones_like(logp), form=form
  )
  return result.loss[0, :, 0], result.clipped[0, :, 0].tolist()


def test_p3o_by_hand():
  up, down = np.log(1.5), np.log(0.9)
  # The better one has moved up by more than the clip; the worse one not yet.
  loss, acts = two(up, down)
  np.testing.assert_allclose(loss, [-0.9 * 1.2, 1.5 * 0.9], rtol=1e-5)
  assert acts == [True, False]
  # Their quotient has moved by .51 nats.
  loss, acts = two(up, down, form="joint")
  np.testing.assert_allclose(loss, [-0.5 * 1.35 * 0.2] * 2, rtol=1e-5)
  assert acts == [True, True]
  # With the rewards swapped neither clip acts: the pair has moved against them.
  loss, acts = two(up, down, (0.0, 1.0))
  np.testing.assert_allclose(loss, [0.9 * 1.5, -1.5 * 0.9], rtol=1e-5)
  assert acts == [False, False]
  loss, acts = two(up, down, (0.0, 1.0), "joint")
  np.testing.assert_allclose(loss, [0.5 * 1.35 * (up - down)] * 2, rtol=1e-5)
  assert acts == [False, False]
  for form in ("separate", "joint"):  # equal rewards say nothing, and are no clip either
    loss, acts = two(up, down, (1.0, 1.0), form)
    assert np.all(np.asarray(loss) == 0) and acts == [False, False]


@pytest.mark.parametrize("name", PLAIN)
@given(floats((GROUPS[0], 1)), st.permutations(range(GROUPS[1])))
def test_a_shift_of_rewards_and_the_order_change_nothing(name, shift, order):
  logp, old_logp, r, mask = random_batch()
  value, gradient, acts = in_batch(GROUP[name], logp, old_logp, r, mask)
  shifted = in_batch(GROUP[name], logp, old_logp, r + shift, mask)
  assert shifted[0] == pytest.approx(float(value), rel=1e-3, abs=1e-4)
  np.testing.assert_allclose(shifted[1], gradient, rtol=1e-3, atol=1e-4)
  mixed = in_batch(GROUP[name], *(x[:, order] for x in (logp, old_logp, r, mask)))
  assert mixed[0] == pytest.approx(float(value), rel=1e-4, abs=1e-5)
  np.testing.assert_allclose(mixed[1], gradient[:, order], rtol=1e-4, atol=1e-5)
  np.testing.assert_array_equal(mixed[2], acts[:, order])


def test_copg_is_least_where_the_reference_is_tilted_by_the_reward():
  ref = np.log([0.5, 0.3, 0.2])
  r = np.array([1.0, -0.5, 0.2])
  tilted = ref + r / BETA
  tilted -= np.log(np.exp(tilted).sum())
  batch = (tilted.reshape(1, 3, 1), ref.reshape(1, 3, 1), r[None], np.ones((1, 3, 1)))
  value, gradient, _ = in_batch(
    GROUP["copg"], *(np.asarray(x, np.float32) for x in batch[:3]), batch[3] > 0
  )
  assert value == pytest.approx(0, abs=1e-10)
  np.testing.assert_allclose(gradient, 0, atol=1e-5)


@pytest.mark.parametrize(
  ("call", "message"),
  [
    (lambda x: surrogates.p3o(x, x, x[0], x, clip=-0.1), "clip is -0.1"),
    (
      lambda x: surrogates.p3o(x, x, x[0], x, clip=1.5),
      "clip is 1.5 and form is 'separate'",
    ),
    (
      lambda x: surrogates.p3o(x, x, x[0], x, -1, "joint"),
      "clip is -1 and form is 'joint'",
    ),
    (
      lambda x: surrogates.p3o(x, x, x[0], x, form="both"),
      "form is 'both'; allowed are 'separate' and 'joint'",
    ),
    (lambda x: surrogates.copg(x, x, x[0], x, 0.0), "beta is 0.0; it must be positive"),
  ],
)
def test_bad_settings(call, message):
  with pytest.raises(ValueError, match=message):
    call(jnp.zeros((1, 1, 1)))


def test_shapes_are_checked():
  x = jnp.zeros((1, 2, 3))
  for function in GROUP.values():
    with pytest.raises(AssertionError):
      function(x, x, jnp.zeros((1, 3)), jnp.ones((1, 2, 3)))
    with pytest.raises(AssertionError):
      function(x, x, jnp.zeros((1, 2)), jnp.ones((1, 2, 1)))


def test_the_joint_clip_may_be_wide():
  x = jnp.zeros((1, 2, 1))
  assert (
    surrogates.p3o(x, x, x[..., 0], x == 0, clip=3.0, form="joint").loss.shape == x.shape
  )
