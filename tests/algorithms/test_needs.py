"""An algorithm needs a reference and old log-probabilities only where it uses them."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pgax import algorithms, kl
from pgax.algorithms import parts
from pgax.types import SurrogateLoss
from tests import arrays

ROLLOUT, FEEDBACK, VALUES = arrays.rollout(), arrays.feedback(), arrays.values()
OLD, REF = ROLLOUT.logp, ROLLOUT.logp - 0.3 * ROLLOUT.action_mask
PRESETS = algorithms.presets.ALL
NEED_REFERENCE = {
  "rloo",
  "remax",
  "reinforce_pp",
  "reinforce_pp_baseline",
  "ppo",
  "vc_ppo",
  "grpo",
  "gdpo",
  "grpo_process",
  "a_lol",
  "p3o",
  "copg",
}


def one_step(preset):
  """The preset with a single optimizer step on each rollout."""
  return dataclasses.replace(preset(), epochs=1, minibatches=1)


def prepare(algorithm, old_logp, ref_logp):
  values = VALUES if algorithm.critic else None
  return algorithms.prepare(
    algorithm, ROLLOUT, FEEDBACK, old_logp, ref_logp, kl_coef=0.04, values=values
  )


def test_presets_that_need_a_reference():
  assert {p.__name__ for p in PRESETS if p().needs_reference} == NEED_REFERENCE
  # The variants without a penalty do not.
  for preset in (algorithms.grpo, algorithms.rloo, algorithms.ppo, algorithms.p3o):
    assert not preset(kl_coef=0.0).needs_reference
  assert not algorithms.a_lol(importance="none").needs_reference
  assert algorithms.a_lol(importance="none", kl_coef=0.1).needs_reference
  # A penalty anchored at the old policy needs no reference.
  assert not algorithms.mdpo().needs_reference


def reads_it(logp, batch):
  return SurrogateLoss(logp - batch.ref_logp, jnp.zeros(logp.shape, bool))


def asks_for_it(logp, batch):
  loss = logp if batch.ref_logp is None else logp - batch.ref_logp
  return SurrogateLoss(loss, jnp.zeros(logp.shape, bool))


class Unhashable:
  """A surrogate that cannot be a key of a cache."""

  __hash__ = None

  def __init__(self, surrogate):
    self.surrogate = surrogate

  def __call__(self, logp, batch):
    return self.surrogate(logp, batch)


@pytest.mark.parametrize("wrap", [lambda x: x, Unhashable])
def test_custom_surrogates(wrap):
  def needs(surrogate):
    algorithm = dataclasses.replace(algorithms.dr_grpo(), surrogate=wrap(surrogate))
    return algorithm.needs_reference

  assert needs(reads_it) and not needs(asks_for_it)
  assert not needs(parts.PolicyGradient()) and needs(parts.Contrastive())


def test_a_surrogate_is_traced_once():
  calls = []

  def counted(logp, batch):
    calls.append(1)
    return asks_for_it(logp, batch)

  algorithm = dataclasses.replace(algorithms.dr_grpo(), surrogate=counted)
  assert not algorithm.needs_reference
  assert not dataclasses.replace(algorithm, epochs=3).needs_reference
  assert len(calls) == 1


def test_old_log_probabilities_are_needed_for_what_compares_with_them():
  plain = algorithms.dr_grpo()
  assert not plain.needs_old_logp and not algorithms.grpo().needs_old_logp
  correction = parts.TruncatedWeights()
  for changed in (
    dataclasses.replace(plain, epochs=2),
    dataclasses.replace(plain, minibatches=2),
    dataclasses.replace(plain, sampler_correction=correction),
    algorithms.rloo(),
  ):
    assert changed.needs_old_logp
    with pytest.raises(ValueError, match="old_logp is None, but the algorithm needs it"):
      prepare(changed, None, REF)
  assert not algorithms.rloo(kl_coef=0.0).needs_old_logp


@pytest.mark.parametrize("preset", PRESETS)
def test_a_missing_reference_is_named(preset):
  algorithm = preset()
  if algorithm.needs_reference:
    with pytest.raises(ValueError, match="ref_logp is None, but the algorithm needs it"):
      prepare(algorithm, OLD, None)
  else:
    assert prepare(algorithm, OLD, None).ref_logp is None


@pytest.mark.parametrize("part", [parts.Contrastive(), parts.ReferenceWeighted()])
def test_parts_name_the_missing_reference(part):
  batch = prepare(algorithms.dr_grpo(), OLD, None)
  with pytest.raises(ValueError, match=f"ref_logp is None; {type(part).__name__} needs"):
    part(OLD, batch)


@pytest.mark.parametrize("preset", PRESETS)
def test_what_is_not_needed_changes_nothing(preset):
  """Loss and gradient are the same with and without; the batch has what was given."""
  algorithm = one_step(preset)
  old = OLD if algorithm.needs_old_logp else None
  ref = REF if algorithm.needs_reference else None
  complete, reduced = prepare(algorithm, OLD, REF), prepare(algorithm, old, ref)
  np.testing.assert_array_equal(complete.old_logp, np.where(complete.loss_mask, OLD, 0))
  np.testing.assert_array_equal(complete.ref_logp, np.where(complete.loss_mask, REF, 0))
  assert (reduced.old_logp is None) == (not algorithm.needs_old_logp)
  assert (reduced.ref_logp is None) == (not algorithm.needs_reference)

  def loss(logp, batch):
    outputs = 1.5 * VALUES if algorithm.critic else None
    return algorithms.loss(algorithm, logp, batch, 0.04, outputs)

  grad = jax.value_and_grad(loss, has_aux=True)
  expected, actual = grad(OLD, complete), grad(OLD, reduced)
  for one, two in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
    np.testing.assert_allclose(one, two, rtol=1e-6, atol=1e-6)
  assert np.abs(np.asarray(actual[1])).max() > 0


def test_the_rollouts_log_probabilities_are_in_the_batch():
  batch = prepare(algorithms.dapo(drop_truncated=True), None, None)
  expected = np.where(batch.loss_mask, ROLLOUT.logp, 0)
  np.testing.assert_array_equal(batch.rollout_logp, expected)


def test_a_penalty_to_the_old_policy_without_its_log_probabilities():
  algorithm = one_step(algorithms.mdpo)
  _, sums = algorithms.loss(algorithm, OLD, prepare(algorithm, None, None), 2.0)
  assert sums.kl == 0 and sums.kl_old == 0
  assert isinstance(algorithm.kl.controller, kl.AnnealedController)
