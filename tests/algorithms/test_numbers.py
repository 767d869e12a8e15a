"""Algorithms are partitioned into structure and numbers, and combined again."""

import dataclasses

import jax
import pytest

from pgax import algorithms
from pgax.algorithms import combine, partition, parts, presets
from pgax.algorithms.numbers import find_numbers


@pytest.mark.parametrize("preset", presets.ALL, ids=lambda x: x.__name__)
def test_every_preset_is_partitioned_and_combined(preset):
  algorithm = preset()
  structure, numbers = partition(algorithm)
  assert numbers == find_numbers(algorithm)
  assert combine(structure, numbers) == algorithm
  assert {type(x) for x in numbers.values()} <= {float}


def test_algorithms_that_differ_in_numbers_have_one_structure():
  one, other = algorithms.grpo(clip_high=0.28, kl_coef=0.1), algorithms.grpo(clip_high=1)
  assert partition(one).structure == partition(other).structure
  assert hash(partition(one).structure) == hash(partition(other).structure)
  assert partition(other).numbers["surrogate.clip_high"] == 1.0
  for different in (
    algorithms.grpo(kl_coef=0.0),  # no penalty at all
    algorithms.grpo(epochs=2),
    algorithms.grpo(ddof=1),
    algorithms.dr_grpo(),
  ):
    assert partition(different).structure != partition(one).structure


def test_numbers_can_be_in_tuples_and_an_infinite_one_stays():
  structure, numbers = partition(algorithms.dapo())
  assert "shaping.0.coef" in numbers and "target_kl" not in numbers
  assert combine(structure, numbers | {"shaping.0.coef": 2.0}).shaping[0].coef == 2.0
  stops = dataclasses.replace(algorithms.grpo(epochs=2), target_kl=0.1)
  structure, numbers = partition(stops)
  assert numbers["target_kl"] == 0.1
  assert jax.jit(lambda x: combine(structure, x).stops_early + 0)(numbers) == 1


@dataclasses.dataclass(frozen=True)
class Branching:
  """A surrogate that decides by one of its numbers in Python."""

  scale: float = 2.0
  threshold: float = 0.5

  def __call__(self, logp, batch):
    plain = parts.PolicyGradient()(logp, batch)
    factor = self.scale if self.threshold > 0 else 1.0
    return plain._replace(loss=factor * plain.loss)


def test_a_number_that_python_decides_by_is_structure():
  algorithm = dataclasses.replace(algorithms.rloo(), surrogate=Branching())
  numbers = partition(algorithm).numbers
  assert "surrogate.scale" in numbers and "surrogate.threshold" not in numbers


def test_an_algorithm_whose_numbers_are_rejected_stays_as_it_is():
  wrong = algorithms.grpo(clip_low=2.0)
  assert partition(wrong) == (wrong, {})


def test_an_unknown_path_is_rejected():
  with pytest.raises(ValueError, match="surrogate has no key 'clip'; allowed are"):
    combine(algorithms.grpo(), {"surrogate.clip": 0.1})
