"""Checks of algorithms on shapes: missing inputs and unused inputs."""

import dataclasses

import pytest

from pgax import algorithms
from pgax.algorithms import checks, parts

SHAPES = (4, 3, 5, 7)
PRESETS = algorithms.presets.ALL
USES_STEPS = algorithms.grpo_process


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_can_be_traced_with_what_it_uses(preset):
  steps = preset is USES_STEPS
  checks.trace(preset(), *SHAPES, step_rewards=steps)
  assert checks.unused_inputs(preset(), *SHAPES, step_rewards=steps) == []


@pytest.mark.parametrize("preset", PRESETS)
def test_step_rewards_without_use(preset):
  expected = [] if preset is USES_STEPS else ["step_rewards"]
  assert checks.unused_inputs(preset(), *SHAPES, step_rewards=True) == expected


def test_baselines_without_use():
  moving = algorithms.MovingAverage()
  algorithm = dataclasses.replace(algorithms.grpo(), baseline=moving, greedy_baseline=True)
  expected = ["baseline", "greedy_baseline"]
  assert checks.unused_inputs(algorithm, *SHAPES) == expected
  assert checks.unused_inputs(algorithms.reinforce(rate=0.1), *SHAPES) == []


def added(inputs):
  """An advantage that fails on None with a TypeError."""
  return inputs.rewards - inputs.baseline


def test_a_custom_advantage_may_raise_any_error():
  moving = algorithms.MovingAverage()
  algorithm = dataclasses.replace(algorithms.grpo(), advantage=added, baseline=moving)
  assert checks.unused_inputs(algorithm, *SHAPES) == []
  with pytest.raises(TypeError):
    checks.trace(dataclasses.replace(algorithm, baseline=None), *SHAPES)


@pytest.mark.parametrize(
  ("advantage", "shapes", "message"),
  [
    (parts.GroupNormalized(), (4, 1, 5, 7), "group size is 1"),
    (parts.ProcessNormalized(), SHAPES, "needs step rewards"),
    (parts.MovingAverageBaseline(), SHAPES, "baseline is None"),
    (parts.GreedyBaseline(), SHAPES, "greedy_baseline is False"),
    (parts.GAE(), SHAPES, "has no critic"),
  ],
)
def test_missing_inputs_are_named(advantage, shapes, message):
  algorithm = dataclasses.replace(algorithms.dr_grpo(), advantage=advantage)
  with pytest.raises(ValueError, match=message):
    checks.trace(algorithm, *shapes)


def critic_reads_reference(outputs, batch):
  return outputs - batch.ref_logp


def test_a_trace_has_no_inputs_that_the_algorithm_does_not_declare():
  # Only a surrogate or a penalty may ask for the reference.
  critic = algorithms.CriticSpec(parts.LambdaReturn(), critic_reads_reference)
  algorithm = dataclasses.replace(algorithms.ppo(kl_coef=0.0), critic=critic)
  with pytest.raises(TypeError):
    checks.trace(algorithm, *SHAPES)
