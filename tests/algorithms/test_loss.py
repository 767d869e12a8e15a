"""The loss: a weighted sum that splits, whatever padding holds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pgax import algorithms, kl, surrogates
from tests import tiny
from tests.algorithms.test_presets import PRESETS

ROLLOUT, (REWARDS, VALID) = tiny.rollout(), tiny.rewards()
LOGP = ROLLOUT.logp * 1.8  # ratios from 1 down to 0.45, so that the clip acts
REF = ROLLOUT.logp - 0.3 * ROLLOUT.mask


def _batch(algorithm, rollout=ROLLOUT):
  return algorithms.prepare(algorithm, rollout, REWARDS, VALID, rollout.logp, REF, 0.04)


def test_grpo_is_the_sum_of_its_formula():
  batch = _batch(algorithms.grpo())
  value, sums = algorithms.loss(algorithms.grpo(), LOGP, batch, 0.04)
  policy = surrogates.clipped(LOGP, ROLLOUT.logp, batch.advantages)
  penalty = kl.k3(LOGP, batch.ref_logp)
  terms = batch.weights * (policy.loss + 0.04 * penalty) * batch.mask
  assert value == pytest.approx(float(terms.sum()), rel=1e-5)
  assert sums.policy + 0.04 * sums.kl == pytest.approx(float(value), rel=1e-5)
  assert sums.clipped == np.sum(np.asarray(policy.clipped) & np.asarray(batch.mask))
  assert sums.clipped > 0


@pytest.mark.parametrize("preset", PRESETS)
def test_parts_add_up(preset):
  batch = _batch(preset())
  whole = jax.value_and_grad(lambda logp: algorithms.loss(preset(), logp, batch, 0.04)[0])(
    LOGP
  )
  values, gradients = [], []
  for part in (slice(0, 1), slice(1, 4)):
    some = jax.tree.map(lambda x, part=part: x[part], batch)
    value, gradient = jax.value_and_grad(
      lambda logp, some=some: algorithms.loss(preset(), logp, some, 0.04)[0]
    )(LOGP[part])
    values.append(value)
    gradients.append(gradient)
  assert sum(values) == pytest.approx(float(whole[0]), rel=1e-5)
  np.testing.assert_allclose(np.concatenate(gradients), whole[1], rtol=1e-6)


@pytest.mark.parametrize("preset", PRESETS)
def test_padding_reaches_neither_value_nor_gradient(preset):
  batch = _batch(preset())

  def value(logp):
    return algorithms.loss(preset(), logp, batch, 0.04)[0]

  clean = jax.value_and_grad(value)(LOGP)
  for poison in (np.nan, np.inf, -np.inf):
    dirty = jax.value_and_grad(value)(jnp.where(ROLLOUT.mask, LOGP, poison))
    assert dirty[0] == clean[0]
    np.testing.assert_array_equal(dirty[1], clean[1])


@pytest.mark.parametrize("preset", PRESETS)
def test_order_of_prompts_and_of_the_group_changes_nothing(preset):
  order, within = np.array([2, 0, 3, 1]), np.array([1, 3, 0, 2])
  batch = _batch(preset())
  straight, _ = algorithms.loss(preset(), LOGP, batch, 0.04)
  moved = jax.tree.map(lambda x: x[order], ROLLOUT)
  grouped = {
    name: getattr(moved, name)[:, within]
    for name in ("tokens", "mask", "logp", "sample_logp", "finished")
  }
  moved = moved.replace(**grouped)
  shuffled = algorithms.prepare(
    preset(),
    moved,
    REWARDS[order][:, within],
    VALID,
    moved.logp,
    REF[order][:, within],
    0.04,
  )
  crooked, _ = algorithms.loss(preset(), LOGP[order][:, within], shuffled, 0.04)
  assert crooked == pytest.approx(float(straight), rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("preset", PRESETS)
def test_nothing_valid_is_zero_and_not_nan(preset):
  nothing = jnp.zeros_like(VALID)
  batch = algorithms.prepare(
    preset(), ROLLOUT, jnp.full_like(REWARDS, jnp.nan), nothing, LOGP, REF, 0.04
  )
  value, gradient = jax.value_and_grad(
    lambda logp: algorithms.loss(preset(), logp, batch, 0.04)[0]
  )(LOGP)
  assert value == 0 and np.all(np.asarray(gradient) == 0)


def test_k1_in_the_loss_is_possible_but_is_no_penalty():
  # Its expected gradient is zero (tests/ops/test_kl.py); here only: it is what was asked.
  algorithm = algorithms.Algorithm(
    algorithms.parts.GroupCentred(),
    algorithms.parts.PolicyGradient(),
    algorithms.parts.FixedLength(),
    algorithms.KLPenalty(kl.k1, kl.FixedController(1.0), "loss"),
  )
  batch = _batch(algorithm)
  gradient = jax.grad(lambda logp: algorithms.loss(algorithm, logp, batch, 1.0)[0])(LOGP)
  np.testing.assert_allclose(
    gradient, batch.weights * (1 - batch.advantages), rtol=1e-5, atol=1e-7
  )


OTHERS = [
  (
    algorithms.gspo,
    lambda x, b: surrogates.gspo(x, b.old_logp, b.advantages, b.mask, 3e-4, 4e-4),
  ),
  (algorithms.gmpo, lambda x, b: surrogates.gmpo(x, b.old_logp, b.advantages, b.mask)),
  (algorithms.cispo, lambda x, b: surrogates.cispo(x, b.old_logp, b.advantages, 1.0, 0.28)),
  (algorithms.sapo, lambda x, b: surrogates.sapo(x, b.old_logp, b.advantages)),
  (algorithms.dppo, lambda x, b: surrogates.dppo(x, b.old_logp, b.advantages)),
]


@pytest.mark.parametrize(("preset", "surrogate"), OTHERS)
def test_each_part_calls_its_op(preset, surrogate):
  batch = _batch(preset())
  value, _ = algorithms.loss(preset(), LOGP, batch)
  terms = surrogate(LOGP, batch)
  expected = jnp.sum(jnp.where(batch.mask, batch.weights * terms.loss, 0.0))
  assert value == pytest.approx(float(expected), rel=1e-5)
