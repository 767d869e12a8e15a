"""KL estimators: by enumeration of a small policy, by known numbers, and at extremes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

from pgax import kl
from tests.strategies import floats

LOGITS, REF_LOGITS = np.array([0.3, -1.0, 0.8, 0.1]), np.array([-0.2, 0.5, 0.4, -0.9])


def _log_softmax(x):
  return jax.nn.log_softmax(jnp.asarray(x, jnp.float32))


def _expectation(logits, estimator):
  """Expected estimate under the policy, with fixed samples."""
  logp = _log_softmax(logits)
  p = jax.lax.stop_gradient(jnp.exp(logp))
  return jnp.sum(p * estimator(logp, _log_softmax(REF_LOGITS)))


def _true_kl(logits):
  return kl.exact(logits, jnp.asarray(REF_LOGITS))


def _forward_kl(logits):
  return kl.exact(jnp.asarray(REF_LOGITS), logits)


def test_expectation_is_the_divergence():
  p, q = (np.exp(x) / np.exp(x).sum() for x in (LOGITS, REF_LOGITS))
  expected = sum(p[a] * np.log(p[a] / q[a]) for a in range(4))
  assert _true_kl(LOGITS) == pytest.approx(expected, rel=1e-5)
  for estimator in (kl.k1, kl.k3):
    assert _expectation(LOGITS, estimator) == pytest.approx(expected, rel=1e-5)


def test_expected_gradients():
  logits = jnp.asarray(LOGITS, jnp.float32)

  def gradient(estimator):
    return jax.grad(lambda x: _expectation(x, estimator))(logits)

  np.testing.assert_allclose(gradient(kl.k1), 0, atol=1e-6)
  np.testing.assert_allclose(gradient(kl.k2), jax.grad(_true_kl)(logits), rtol=1e-4)
  np.testing.assert_allclose(gradient(kl.k3), jax.grad(_forward_kl)(logits), rtol=1e-4)
  assert not np.allclose(gradient(kl.k3), jax.grad(_true_kl)(logits), rtol=1e-2)


@pytest.mark.parametrize(
  ("mean", "k1_ratio", "k3_ratio"), [(0.1, 20, 1.417), (1, 2, 1.695)]
)
def test_spread_on_gaussians(mean, k1_ratio, k3_ratio):
  # Integrate over N(0, 1), the policy; the reference is N(mean, 1).
  x = np.linspace(-9, 9, 20001)
  density = np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi) * (x[1] - x[0])
  logp, ref_logp = -(x**2) / 2, -((x - mean) ** 2) / 2
  for estimator, expected in ((kl.k1, k1_ratio), (kl.k3, k3_ratio)):
    value = np.asarray(estimator(logp, ref_logp), np.float64)
    first = np.sum(density * value)
    std = np.sqrt(np.sum(density * value**2) - first**2)
    assert first == pytest.approx(mean**2 / 2, rel=1e-3)
    assert std / (mean**2 / 2) == pytest.approx(expected, rel=2e-3)


@given(floats((6,), -4, 0), floats((6,), -4, 0))
def test_matches_reference(logp, ref_logp):
  d = ref_logp.astype(np.float64) - logp
  np.testing.assert_allclose(kl.k1(logp, ref_logp), -d, rtol=1e-5, atol=1e-6)
  np.testing.assert_allclose(kl.k2(logp, ref_logp), d**2 / 2, rtol=1e-5, atol=1e-6)
  np.testing.assert_allclose(kl.k3(logp, ref_logp), np.exp(d) - d - 1, rtol=1e-4, atol=1e-6)
  assert np.all(np.asarray(kl.k3(logp, ref_logp)) >= 0)


def _k3_importance_weighted(logp, ref_logp):
  return kl.k3_importance_weighted(logp, ref_logp, jnp.zeros_like(logp))


@pytest.mark.parametrize("estimator", [kl.k1, kl.k2, kl.k3, _k3_importance_weighted])
@pytest.mark.parametrize("gap", [-1000.0, -50.0, 50.0, 1000.0])
def test_extreme_log_ratios_are_finite(estimator, gap):
  value, gradient = jax.value_and_grad(estimator)(jnp.float32(0), jnp.float32(gap))
  assert np.isfinite(value) and np.isfinite(gradient)
  if estimator in (kl.k2, kl.k3):  # downhill is always towards the reference
    assert value > 0 and np.sign(gradient) == -np.sign(gap)


def test_k3_where_one_side_forbids_the_token():
  assert kl.k3(jnp.float32(-1), jnp.float32(-np.inf)) == np.inf
  assert kl.k3(jnp.float32(-np.inf), jnp.float32(-1)) == np.inf


def test_exact_with_forbidden_tokens():
  forbidden = jnp.array([0.0, 1.0, -jnp.inf])
  assert kl.exact(forbidden, jnp.array([0.0, 1.0, -jnp.inf])) == pytest.approx(0)
  assert np.isfinite(kl.exact(forbidden, jnp.zeros(3)))
  assert kl.exact(jnp.zeros(3), forbidden) == jnp.inf
  free = jax.grad(lambda x: kl.exact(x, jnp.zeros(2)))(jnp.array([0.0, 1.0]))
  for other in (forbidden, jnp.array([0.0, 0.0, -jnp.inf])):
    expected = free if other is not forbidden else jnp.zeros(2)
    result = jax.grad(kl.exact)(forbidden, other)
    np.testing.assert_allclose(result, [*expected, 0], rtol=1e-5, atol=1e-7)


def test_fixed_controller():
  controller = kl.FixedController(0.04)
  state = controller.init()
  assert controller.value(controller.update(state, 100.0, 8)) == pytest.approx(0.04)


@pytest.mark.parametrize(
  ("measured", "factor"), [(6.0, 1.0), (60.0, 1.02), (0.0, 0.98), (6.6, 1.01)]
)
def test_adaptive_controller(measured, factor):
  controller = kl.AdaptiveController(coef=0.2, target=6.0, horizon=10_000)
  state = controller.update(controller.init(), measured, 1000)
  assert controller.value(state) == pytest.approx(0.2 * factor, rel=1e-5)


def test_adaptive_controller_of_large_batches_comes_back():
  controller = kl.AdaptiveController(coef=0.2, target=6.0, horizon=10)
  low = controller.update(controller.init(), 0.0, 1000)
  assert low == pytest.approx(0.2 * 0.8)
  assert controller.update(low, 60.0, 1000) == pytest.approx(0.2 * 0.8 * 1.2)
  assert controller.update(low, 60.0, 0) == low  # a batch that measured nothing


def test_adaptive_controller_needs_a_target():
  with pytest.raises(ValueError, match="target is 0"):
    kl.AdaptiveController(0.1, 0.0, 10)
  with pytest.raises(ValueError, match="horizon is -1"):
    kl.AdaptiveController(0.1, 1.0, -1)


def test_annealed_controller():
  controller = kl.AnnealedController(start=1.0, end=0.25, steps=3)
  state, result = controller.init(), []
  for _ in range(5):
    result.append(float(controller.value(state)))
    state = controller.update(state, 100.0, 8)
  np.testing.assert_allclose(result, [1, 4 / 3, 2, 4, 4], rtol=1e-6)
  for bad in ({"start": 0.0}, {"end": -1.0}, {"steps": 0}):
    ((name, value),) = bad.items()
    with pytest.raises(ValueError, match=f"{name} is {value}"):
      kl.AnnealedController(**bad)


@pytest.mark.parametrize(
  "controller",
  [kl.FixedController(0.1), kl.AdaptiveController(0.1, 6.0, 100), kl.AnnealedController()],
)
def test_the_state_of_a_controller_keeps_its_type(controller):
  # A dtype that changed would cause a retrace at the second step and break a restore.
  state = controller.init()
  later = jax.jit(controller.update)(state, jnp.float32(3.0), 8)
  assert jax.tree.map(jnp.result_type, later) == jax.tree.map(jnp.result_type, state)
  assert controller.value(later).dtype == jnp.float32
  assert controller.value(later).shape == ()


def test_corrected_k3():
  logits = jnp.asarray(LOGITS, jnp.float32)
  drawn = _log_softmax(np.array([0.1, 0.2, -0.5, 0.4]))  # by an older policy

  def expectation(x, old_logp):
    terms = kl.k3_importance_weighted(_log_softmax(x), _log_softmax(REF_LOGITS), old_logp)
    return jnp.sum(jax.lax.stop_gradient(jnp.exp(old_logp)) * terms)

  truth = jax.grad(_true_kl)(logits)
  assert expectation(logits, drawn) == pytest.approx(float(_true_kl(logits)), rel=1e-5)
  on_policy = jax.grad(lambda x: expectation(x, _log_softmax(x)))(logits)
  np.testing.assert_allclose(on_policy, truth, rtol=1e-4)
  np.testing.assert_allclose(
    jax.grad(lambda x: expectation(x, drawn))(logits), truth, rtol=1e-4
  )
