"""Surrogates of completions: a plain reference, with its derivative."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

from pgax import surrogates
from tests import references
from tests.ops.surrogates.losses import SEQUENCE, in_batch
from tests.strategies import GROUPS, TOKENS, floats, masks

PLAIN = {
  "gspo": lambda *xs: references.gspo(*xs, 0.2, 0.3),
  "gmpo": lambda *xs: references.gmpo(*xs, 0.4),
  "a_lol": lambda *xs: references.a_lol(*xs, 0.9, "sequence"),
  "a_lol_token": lambda *xs: references.a_lol(*xs, 0.9, "token"),
  "a_lol_none": lambda *xs: references.a_lol(*xs, 0.9, "none"),
}


def plain_batch(function, logp, old_logp, advantages, mask):
  """Mean over completions with a token of a plain loss, and its gradient."""
  value, gradient = 0.0, np.zeros(logp.shape)
  count = int((mask.sum(-1) > 0).sum())
  for index in np.ndindex(*logp.shape[:-1]):
    n = int(mask[index].sum())
    if n:
      unmasked = [list(map(float, x[index][:n])) for x in (logp, old_logp)]
      loss, slopes = function(*unmasked, float(advantages[index]))
      value += loss / count
      gradient[index][:n] = np.array(slopes) / count
  return value, gradient


@pytest.mark.parametrize("name", PLAIN)
@given(floats(TOKENS, -3, 0), floats(TOKENS, -3, 0), floats(GROUPS, -2, 2), masks())
def test_matches_reference(name, logp, old_logp, advantages, mask):
  value, gradient, _ = in_batch(SEQUENCE[name], logp, old_logp, advantages, mask)
  expected = plain_batch(PLAIN[name], logp, old_logp, advantages, mask)
  np.testing.assert_allclose(value, expected[0], rtol=1e-3, atol=1e-4)
  np.testing.assert_allclose(gradient, expected[1], rtol=1e-3, atol=1e-4)


@given(floats(TOKENS, -3, 0), floats(TOKENS, -3, 0), floats(GROUPS, -2, 2), masks())
def test_one_advantage_for_a_sequence_makes_both_gspo_one(logp, old, advantages, mask):
  by_sequence = in_batch(SEQUENCE["gspo"], logp, old, advantages, mask)
  by_token = in_batch(SEQUENCE["gspo_token"], logp, old, advantages, mask)
  for ours, theirs in zip(by_token, by_sequence, strict=True):
    np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-4)


def test_a_lol_by_hand():
  # Ratios e^.5 and e^-.25 of the tokens, e^.25 of the completion; a weight of at most 1.5.
  logp, ref_logp = jnp.array([[-1.0, -1.5]]), jnp.array([[-1.5, -1.25]])
  ones, up = np.ones((1, 2)), np.full((1, 2), 2.0)

  def result(importance, clip=0.5, advantages=up):
    return surrogates.a_lol(logp, ref_logp, advantages, ones, clip, importance)

  np.testing.assert_allclose(result("sequence").loss, 2 * np.exp(0.25) * -logp, rtol=1e-6)
  token = result("token")
  np.testing.assert_allclose(token.loss, [[2 * 1.5, 3 * np.exp(-0.25)]], rtol=1e-6)
  assert token.clipped.tolist() == [[True, False]]
  np.testing.assert_allclose(result("none").loss, -2 * logp, rtol=1e-6)
  np.testing.assert_allclose(result("sequence", clip=0.0).loss, -2 * logp, rtol=1e-6)
  assert np.all(np.asarray(result("token", advantages=-up).loss) == 0)


@pytest.mark.parametrize(
  ("call", "message"),
  [
    (lambda x: surrogates.gspo(x, x, x, x, 0.1, -0.1), "clip_high is -0.1"),
    (lambda x: surrogates.gspo_token(x, x, x, x, 1.1, 0.1), "clip_low is 1.1"),
    (lambda x: surrogates.gmpo(x, x, x, x, clip=-1), "clip is -1"),
    (lambda x: surrogates.a_lol(x, x, x, x, clip=1.5), r"clip is 1.5; .*\[0, 1\]"),
    (lambda x: surrogates.a_lol(x, x, x, x, clip=float("nan")), "clip is nan"),
    (
      lambda x: surrogates.a_lol(x, x, x, x, importance="step"),
      "importance is 'step'; allowed are 'sequence', 'token' and 'none'",
    ),
  ],
)
def test_bad_settings(call, message):
  with pytest.raises(ValueError, match=message):
    call(jnp.zeros((1, 1)))
