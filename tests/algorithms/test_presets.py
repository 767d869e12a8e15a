"""Presets: the parts that they are made of, and that every setting reaches its part."""

import dataclasses

import pytest

from pgax import aggregation, algorithms, kl
from pgax.algorithms import Algorithm, KLPenalty, parts

PRESETS = [
  algorithms.cispo,
  algorithms.dppo,
  algorithms.dr_grpo,
  algorithms.gmpo,
  algorithms.grpo,
  algorithms.gspo,
  algorithms.maxrl,
  algorithms.opo,
  algorithms.reinforce,
  algorithms.rloo,
  algorithms.sapo,
]


def test_parts():
  assert algorithms.reinforce() == Algorithm(
    parts.BatchMean(), parts.PolicyGradient(), aggregation.sequence_sum
  )
  assert algorithms.rloo() == Algorithm(
    parts.LeaveOneOut(),
    parts.PolicyGradient(),
    aggregation.sequence_sum,
    KLPenalty(kl.k1, kl.FixedController(0.05), "reward"),
  )
  assert algorithms.grpo() == Algorithm(
    parts.GroupStandardised(ddof=0, eps=1e-6),
    parts.Clipped(0.2, 0.2),
    aggregation.sequence_mean,
    KLPenalty(kl.k3, kl.FixedController(0.04), "loss"),
  )
  assert algorithms.dr_grpo() == Algorithm(
    parts.GroupCentred(), parts.Clipped(0.2, 0.2), parts.FixedLength(None)
  )


def test_every_setting_reaches_its_part():
  grpo = algorithms.grpo(0.1, 0.3, kl_coef=0.5, ddof=1, eps=1e-4, epochs=2, minibatches=4)
  assert grpo.surrogate == parts.Clipped(0.1, 0.3)
  assert grpo.kl.controller.coef == 0.5
  assert grpo.advantage == parts.GroupStandardised(1, 1e-4)
  assert (grpo.epochs, grpo.minibatches) == (2, 4)
  dr_grpo = algorithms.dr_grpo(0.1, 0.3, max_length=9, epochs=3, minibatches=2)
  assert dr_grpo.surrogate == parts.Clipped(0.1, 0.3)
  assert dr_grpo.aggregation == parts.FixedLength(9)
  assert (dr_grpo.epochs, dr_grpo.minibatches) == (3, 2)
  rloo = algorithms.rloo(kl_coef=0.2, epochs=3, minibatches=2)
  assert (rloo.kl.controller.coef, rloo.epochs, rloo.minibatches) == (0.2, 3, 2)
  reinforce = algorithms.reinforce(epochs=3, minibatches=2)
  assert (reinforce.epochs, reinforce.minibatches) == (3, 2)


@pytest.mark.parametrize(
  ("algorithm", "surrogate"),
  [
    (algorithms.gspo(0.1, 0.2), parts.SequenceClipped(0.1, 0.2)),
    (algorithms.gmpo(0.3), parts.GeometricMean(0.3)),
    (algorithms.cispo(0.1, 0.2), parts.ClippedWeight(0.1, 0.2)),
    (algorithms.sapo(2.0, 3.0), parts.SoftGate(2.0, 3.0)),
    (algorithms.dppo(0.1), parts.TrustedTokens(0.1)),
    (algorithms.gspo(), parts.SequenceClipped(3e-4, 4e-4)),
    (algorithms.gmpo(), parts.GeometricMean(0.4)),
    (algorithms.cispo(), parts.ClippedWeight(1.0, 0.28)),
    (algorithms.sapo(), parts.SoftGate(1.0, 1.05)),
    (algorithms.dppo(), parts.TrustedTokens(0.2)),
  ],
)
def test_surrogates_of_the_others(algorithm, surrogate):
  assert algorithm.surrogate == surrogate and algorithm.kl is None
  assert algorithm.advantage == parts.GroupStandardised()


def test_advantages_of_the_others():
  assert algorithms.opo().advantage == parts.LengthWeighted()
  assert algorithms.maxrl().advantage == parts.RelativeToMean()
  for preset in (algorithms.opo, algorithms.maxrl):
    assert preset().surrogate == parts.PolicyGradient()


@pytest.mark.parametrize("preset", PRESETS)
def test_epochs_and_minibatches(preset):
  algorithm = preset(epochs=3, minibatches=2)
  assert (algorithm.epochs, algorithm.minibatches) == (3, 2)


@pytest.mark.parametrize("preset", [algorithms.grpo, algorithms.rloo])
def test_no_coefficient_is_no_penalty(preset):
  assert preset(kl_coef=0.0).kl is None
  for bad in (-0.1, float("nan"), float("inf")):
    with pytest.raises(ValueError, match=f"kl_coef is {bad}"):
      preset(kl_coef=bad)


@pytest.mark.parametrize("preset", PRESETS)
def test_equal_values_hash_equal_and_can_be_replaced(preset):
  assert preset() == preset() and hash(preset()) == hash(preset())
  changed = dataclasses.replace(preset(), aggregation=parts.FixedLength(99))
  assert changed != preset() and changed.surrogate == preset().surrogate
  with pytest.raises(dataclasses.FrozenInstanceError):
    preset().epochs = 3


def test_bad_values():
  with pytest.raises(ValueError, match="epochs is 0"):
    algorithms.grpo(epochs=0)
  with pytest.raises(ValueError, match="minibatches is -1"):
    algorithms.grpo(minibatches=-1)
  with pytest.raises(ValueError, match="placement is 'gradient'.*'reward' and 'loss'"):
    KLPenalty(kl.k1, kl.FixedController(0.1), "gradient")
