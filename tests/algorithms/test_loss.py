"""The loss: a weighted sum that can be split, and ignores what is masked."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pgax import algorithms, kl, surrogates
from tests import arrays

ROLLOUT, FEEDBACK, VALUES = arrays.rollout(), arrays.feedback(), arrays.values()
OUTPUTS = VALUES * 1.5
LOGP = ROLLOUT.logp * 1.8  # ratios from 1 down to 0.45, so that the clip acts
REF = ROLLOUT.logp - 0.3 * ROLLOUT.action_mask


def _batch(algorithm, rollout=ROLLOUT, feedback=FEEDBACK, ref_logp=REF, values=VALUES):
  values = values if algorithm.critic else None
  return algorithms.prepare(
    algorithm, rollout, feedback, rollout.logp, ref_logp, kl_coef=0.04, values=values
  )


def _loss(algorithm, logp, batch, outputs=OUTPUTS):
  """The loss of a batch, the critic's included where there is one."""
  outputs = outputs[: len(logp)] if algorithm.critic else None
  return algorithms.loss(algorithm, logp, batch, 0.04, outputs)


def test_grpo_is_the_sum_of_its_formula():
  batch = _batch(algorithms.grpo())
  value, sums = algorithms.loss(algorithms.grpo(), LOGP, batch, 0.04)
  policy = surrogates.clipped(LOGP, ROLLOUT.logp, batch.advantages)
  penalty = kl.k3(LOGP, batch.ref_logp)
  terms = batch.weights * (policy.loss + 0.04 * penalty) * batch.loss_mask
  assert value == pytest.approx(float(terms.sum()), rel=1e-5)
  assert sums.policy + 0.04 * sums.kl == pytest.approx(float(value), rel=1e-5)
  acts = np.sum(np.asarray(policy.clipped) & np.asarray(batch.loss_mask))
  assert sums.clipped_low + sums.clipped_high == acts
  assert sums.clipped_low == acts > 0  # every ratio is below 1 here


@pytest.mark.parametrize("preset", algorithms.presets.ALL)
def test_parts_add_up(preset):
  algorithm = preset()
  batch = _batch(algorithm)

  def value_and_grad(rows):
    part = jax.tree.map(lambda x: x[rows], batch)
    return jax.value_and_grad(lambda logp: _loss(algorithm, logp, part, OUTPUTS[rows])[0])(
      LOGP[rows]
    )

  total = value_and_grad(slice(0, 4))
  parts = [value_and_grad(rows) for rows in (slice(0, 1), slice(1, 4))]
  assert sum(value for value, _ in parts) == pytest.approx(float(total[0]), rel=1e-5)
  gradients = np.concatenate([gradient for _, gradient in parts])
  np.testing.assert_allclose(gradients, total[1], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("preset", algorithms.presets.ALL)
def test_padding_reaches_neither_value_nor_gradient(preset):
  algorithm = preset()
  batch = _batch(algorithm)

  def value(logp, outputs):
    return _loss(algorithm, logp, batch, outputs)[0]

  differentiate = jax.value_and_grad(value, (0, 1))
  clean = differentiate(LOGP, OUTPUTS)
  for poison in (np.nan, np.inf, -np.inf):
    dirty = differentiate(
      *(jnp.where(ROLLOUT.action_mask, x, poison) for x in (LOGP, OUTPUTS))
    )
    assert dirty[0] == clean[0]
    for actual, expected in zip(dirty[1], clean[1], strict=True):
      np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("preset", algorithms.presets.ALL)
def test_order_of_prompts_and_of_the_group_changes_nothing(preset):
  order, within = np.array([2, 0, 3, 1]), np.array([1, 3, 0, 2])
  algorithm = preset()
  in_order, _ = _loss(algorithm, LOGP, _batch(algorithm))

  def shuffle(tree):
    return jax.tree.map(
      lambda x: x[order][:, within] if x.shape[:2] == (4, 4) else x[order], tree
    )

  shuffled = _batch(
    algorithm,
    ROLLOUT.replace(
      **{k: shuffle(v) for k, v in vars(ROLLOUT).items() if "prompt" not in k}
    ),
    shuffle(FEEDBACK),
    shuffle(REF),
    shuffle(VALUES),
  )
  reordered, _ = _loss(algorithm, shuffle(LOGP), shuffled, shuffle(OUTPUTS))
  assert reordered == pytest.approx(float(in_order), rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("preset", algorithms.presets.ALL)
def test_nothing_valid_is_zero_and_not_nan(preset):
  algorithm = preset()
  nothing = FEEDBACK.replace(
    rewards=jnp.full_like(FEEDBACK.rewards, jnp.nan),
    valid=jnp.zeros_like(FEEDBACK.valid),
  )
  batch = _batch(algorithm, feedback=nothing)
  value, gradient = jax.value_and_grad(lambda logp: _loss(algorithm, logp, batch)[0])(LOGP)
  assert value == 0 and np.all(np.asarray(gradient) == 0)


def test_k1_in_the_loss_is_a_penalty_only_times_the_ratio():
  # By itself its expected gradient is zero (tests/ops/test_kl.py), so it is rejected.
  with pytest.raises(ValueError, match="estimator is k1 with placement 'loss'"):
    algorithms.KLPenalty(kl.k1, kl.FixedController(1.0), "loss")
  penalty = algorithms.KLPenalty(
    kl.k1, kl.FixedController(1.0), "loss", importance_weighted=True
  )
  algorithm = dataclasses.replace(algorithms.dr_grpo(), kl=penalty)
  batch = _batch(algorithm)
  ratio = jnp.exp(LOGP - batch.old_logp)
  expected = jnp.sum(batch.weights * ratio * (LOGP - batch.ref_logp) * batch.loss_mask)
  assert _loss(algorithm, LOGP, batch)[1].kl == pytest.approx(float(expected), rel=1e-5)


def test_mdpo_is_its_surrogate_in_parts():
  algorithm = algorithms.mdpo()
  batch = _batch(algorithm)
  coef = 1 / 0.3
  value, _ = algorithms.loss(algorithm, LOGP, batch, coef)
  terms = surrogates.mdpo(LOGP, batch.old_logp, batch.advantages, 0.3).loss
  assert value == pytest.approx(float(jnp.sum(batch.weights * terms)), rel=1e-5)


def test_imitation_is_the_likelihood_of_what_was_right():
  algorithm = algorithms.vapo(imitation_coef=0.3)
  batch = _batch(algorithm)
  right = np.asarray(ROLLOUT.action_mask) & (np.asarray(FEEDBACK.rewards) > 0)[..., None]
  expected = -0.3 * np.asarray(LOGP)[right].mean()
  assert _loss(algorithm, LOGP, batch)[1].nll == pytest.approx(expected, rel=1e-5)


def test_correction_weighs_the_policys_loss_and_nothing_else():
  part = algorithms.parts.TruncatedWeights(cap=1.2)
  algorithm = dataclasses.replace(algorithms.grpo(), sampler_correction=part)
  rollout = ROLLOUT.replace(sample_logp=ROLLOUT.logp - 0.1)
  plain, corrected = (_batch(a, rollout) for a in (algorithms.grpo(), algorithm))
  (_, one), (_, two) = (_loss(algorithm, LOGP, b) for b in (plain, corrected))
  assert two.policy == pytest.approx(float(one.policy) * np.exp(0.1), rel=1e-4)
  assert two.kl == one.kl


def test_a_critic_needs_its_outputs():
  with pytest.raises(ValueError, match="outputs is None; the algorithm has a critic"):
    algorithms.loss(algorithms.ppo(), LOGP, _batch(algorithms.ppo()))


OTHERS = [
  (
    algorithms.gspo,
    lambda x, b: surrogates.gspo(x, b.old_logp, b.advantages, b.loss_mask, 3e-4, 4e-4),
  ),
  (algorithms.gmpo, lambda x, b: surrogates.gmpo(x, b.old_logp, b.advantages, b.loss_mask)),
  (algorithms.cispo, lambda x, b: surrogates.cispo(x, b.old_logp, b.advantages, 1.0, 0.28)),
  (algorithms.sapo, lambda x, b: surrogates.sapo(x, b.old_logp, b.advantages)),
  (algorithms.dppo, lambda x, b: surrogates.dppo(x, b.old_logp, b.advantages)),
]


@pytest.mark.parametrize(("preset", "surrogate"), OTHERS)
def test_each_part_calls_its_op(preset, surrogate):
  batch = _batch(preset())
  value, _ = algorithms.loss(preset(), LOGP, batch)
  terms = surrogate(LOGP, batch)
  expected = jnp.sum(jnp.where(batch.loss_mask, batch.weights * terms.loss, 0.0))
  assert value == pytest.approx(float(expected), rel=1e-5)
