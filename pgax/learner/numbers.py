"""Numbers of a step: arguments of its program, so that changing one compiles nothing."""

from collections.abc import Mapping

from pgax.algorithms.numbers import (
  Partitioned,
  combine,
  find_numbers,
  missing_numbers,
  partition,
  partition_at,
)
from pgax.learner.config import StepConfig
from pgax.types import Array

Numbers = Mapping[str, Array | float]
_OPTIMIZERS = ("optimizer", "critic_optimizer", "supervised_optimizer")
# What else an optimizer has decides which transformations it is made of.
OF_OPTIMIZER = ("learning_rate", "clip_norm")


def partition_steps(config: StepConfig) -> Partitioned:
  """Partitions step settings into their structure and their numbers.

  The numbers are those of the algorithm (see `algorithms.partition`), learning rates and
  norms of clipping of the optimizers, and the temperature.

  Args:
    config: step settings.

  Returns:
    A `Partitioned`, with paths such as `algorithm.surrogate.clip_high` and
    `optimizer.learning_rate`.
  """
  paths = [f"algorithm.{path}" for path in partition(config.algorithm).numbers]
  paths += [f"{name}.{field}" for name in _OPTIMIZERS for field in OF_OPTIMIZER]
  everything = find_numbers(config)  # an infinite norm is none of them
  return partition_at(config, [x for x in (*paths, "temperature") if x in everything])


def example(structure: StepConfig) -> StepConfig:
  """Fills a structure with ones, for shapes, which no number decides."""
  return combine(structure, dict.fromkeys(missing_numbers(structure), 1.0))
