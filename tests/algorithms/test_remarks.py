"""One optimizer step per rollout: presets that differ in the ratio alone are one."""

import dataclasses

import jax
import numpy as np
import pytest

from pgax import aggregation, algorithms
from pgax.algorithms import parts
from pgax.algorithms.remarks import OF_RATIO, single_step_remark
from tests import arrays

ROLLOUT, FEEDBACK = arrays.rollout(), arrays.feedback()


def gradient(algorithm):
  batch = algorithms.prepare(algorithm, ROLLOUT, FEEDBACK, ROLLOUT.logp)
  batch = batch.replace(old_logp=None)  # as in a run with one optimizer step
  return jax.grad(lambda x: algorithms.loss(algorithm, x, batch)[0])(ROLLOUT.logp)


def plain(**changes):
  return dataclasses.replace(algorithms.grpo(kl_coef=0.0), **changes)


SAME = [
  (algorithms.gspo(), plain()),
  (algorithms.gmpo(), plain()),
  (algorithms.sapo(), plain()),
  (algorithms.dppo(), algorithms.dr_grpo()),
  (algorithms.cispo(), plain(aggregation=aggregation.token_mean)),
  (algorithms.cispo(), algorithms.dapo(overlong_coef=0.0)),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_gradients_of_one_step_are_those_of_another_preset(one, other):
  ours, theirs = gradient(one), gradient(other)
  assert np.abs(ours).max() > 1e-3
  np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("kind", OF_RATIO)
def test_every_surrogate_of_the_ratio_has_the_policy_gradient(kind):
  ours = gradient(plain(surrogate=kind()))
  theirs = gradient(plain(surrogate=parts.PolicyGradient()))
  np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-7)


def test_a_run_of_one_step_is_told_its_equals():
  remark = single_step_remark(algorithms.gspo())
  assert "SequenceClipped has the gradient of the plain policy gradient" in remark
  assert "(gspo, gmpo, sapo, grpo without KL)" in remark
  assert "dr_grpo, dppo" in single_step_remark(algorithms.dppo())
  cispo = single_step_remark(algorithms.cispo())
  assert "cispo, dapo without its sampling and shaping" in cispo
  assert "(" not in single_step_remark(algorithms.reinforce_pp(clip=0.5, kl_coef=9.0))


def test_other_runs_are_told_nothing():
  for algorithm in (
    algorithms.gspo(minibatches=2),
    algorithms.rloo(),
    algorithms.mdpo_kimi(epochs=1),
    algorithms.p3o(),
  ):
    assert single_step_remark(algorithm) == ""
