"""What all surrogates share: on-policy, masked, at extremes, with nothing to learn."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pgax import advantages, aggregation, surrogates
from tests.ops.surrogates.losses import ALL, BETA, GROUP, TOKEN, in_batch, random_batch

LOGP, OLD_LOGP, SCORES, MASK = random_batch()
REAL = MASK.any(-1)


def test_every_surrogate_is_here():
  names = set(surrogates.__all__) - {"ratio"}
  assert {name for name in names if not any(key.startswith(name) for key in ALL)} == set()


def _advantages(name):
  """The advantage `[N, G]` whose policy gradient a surrogate has at ratio 1."""
  if name.startswith("p3o"):
    return advantages.rloo(SCORES, REAL)
  if name == "copg":
    # The second argument is the reference; the penalty is in the reward, as data.
    penalty = np.sum((LOGP - OLD_LOGP) * MASK, axis=-1)
    return 2 * advantages.rloo(SCORES - BETA * penalty, REAL)
  if name == "tpo":  # the target less the policy, times the number of completions
    return REAL.sum(-1, keepdims=True) * (_tilted(SCORES) - _tilted(0))
  return np.maximum(SCORES, 0) if name.startswith("a_lol") else SCORES


def _tilted(scores):
  """The policy over the completions of each group, tilted by scores, in float64."""
  total = np.sum(LOGP.astype(np.float64) * MASK, axis=-1) + scores
  weights = np.where(REAL, np.exp(total - total.max(-1, keepdims=True)), 0)
  return weights / weights.sum(-1, keepdims=True)


@pytest.mark.parametrize("name", ALL)
def test_at_ratio_one_it_has_the_policy_gradients_gradient(name):
  old_logp = OLD_LOGP if name == "copg" else LOGP
  _, gradient, acts = in_batch(ALL[name], LOGP, old_logp, SCORES, MASK)
  # The loss of a completion weighs its tokens as its log-probability does.
  weigh = aggregation.sequence_sum if name in GROUP else aggregation.sequence_mean
  expected = -np.asarray(_advantages(name))[..., None] * np.asarray(weigh(MASK))
  np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-6)
  assert not np.any(acts)


@pytest.mark.parametrize("gap", [-1000.0, -50.0, 50.0, 1000.0])
@pytest.mark.parametrize("name", ALL)
def test_extreme_log_ratios_are_finite(name, gap):
  for sign in (np.ones_like(SCORES), np.sign(SCORES)):  # together, and apart
    shifted = (LOGP + gap * sign[..., None]).astype(np.float32)
    value, gradient, _ = in_batch(ALL[name], shifted, LOGP, SCORES, MASK)
    assert np.isfinite(value) and np.all(np.isfinite(gradient))


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", [name for name in ALL if name not in TOKEN])
def test_padding_reaches_neither_value_nor_gradient(name, poison):
  value, gradient, acts = in_batch(ALL[name], LOGP, OLD_LOGP, SCORES, MASK)
  bad = [np.where(MASK, x, np.float32(poison)) for x in (LOGP, OLD_LOGP)]
  scores = np.where(REAL, SCORES, np.float32(poison))
  result = in_batch(ALL[name], *bad, scores, MASK)
  assert result[0] == value
  np.testing.assert_array_equal(result[1], gradient)
  np.testing.assert_array_equal(result[2], acts)
  assert np.all(np.asarray(gradient)[~MASK] == 0) and not np.any(np.asarray(acts)[~MASK])
  terms = ALL[name](*bad, scores, MASK).loss
  assert np.all(np.asarray(terms)[~MASK] == 0)


@pytest.mark.parametrize("name", ALL)
def test_wider_padding_changes_nothing(name):
  value, gradient, _ = in_batch(ALL[name], LOGP, OLD_LOGP, SCORES, MASK)
  wider = [np.pad(x, ((0, 0), (0, 0), (0, 3))) for x in (LOGP, OLD_LOGP, MASK)]
  result = in_batch(ALL[name], wider[0], wider[1], SCORES, wider[2])
  assert result[0] == pytest.approx(float(value), rel=1e-6)
  np.testing.assert_allclose(result[1][..., :-3], gradient, rtol=1e-6)


@pytest.mark.parametrize("name", ALL)
def test_nothing_to_learn(name):
  value, gradient, _ = in_batch(ALL[name], LOGP, OLD_LOGP, SCORES, np.zeros_like(MASK))
  assert value == 0 and np.all(np.asarray(gradient) == 0)


@pytest.mark.parametrize("name", [name for name in GROUP if name != "mdpo_kimi"])
def test_a_group_of_one_has_no_pair(name):
  value, gradient, acts = in_batch(
    ALL[name], *(x[:, :1] for x in (LOGP, OLD_LOGP, SCORES, MASK))
  )
  assert value == 0 and np.all(np.asarray(gradient) == 0) and not np.any(acts)


@pytest.mark.parametrize("name", ALL)
def test_no_gradient_into_data(name):
  def total(old_logp, scores):
    return jnp.sum(ALL[name](LOGP, old_logp, scores, MASK).loss)

  for gradient in jax.jit(jax.grad(total, argnums=(0, 1)))(OLD_LOGP, SCORES):
    assert np.all(np.asarray(gradient) == 0)


@pytest.mark.parametrize("name", ALL)
def test_half_precision_is_computed_in_float32(name):
  result = ALL[name](
    *(jnp.asarray(x, jnp.bfloat16) for x in (LOGP, OLD_LOGP, SCORES)), MASK
  )
  assert result.loss.dtype == jnp.float32


def test_shapes_are_checked():
  with pytest.raises(AssertionError):
    surrogates.policy_gradient(jnp.zeros((2, 3)), jnp.zeros((2, 1)))
  for function in (surrogates.clipped, surrogates.unclipped, surrogates.sapo):
    with pytest.raises(AssertionError):
      function(jnp.zeros((2, 3)), jnp.zeros(3), jnp.zeros((2, 3)))
