"""Numbers of a step: arguments of its program, so that changing one compiles nothing."""

from collections.abc import Mapping

from pgax.algorithms.lift import Lifted, find_holes, find_numbers, join, lift, without
from pgax.learner.config import StepConfig
from pgax.types import Array

Numbers = Mapping[str, Array | float]
_OPTIMIZERS = ("optimizer", "critic_optimizer", "supervised_optimizer")
# What else an optimizer has decides which transformations it is made of.
OF_OPTIMIZER = ("learning_rate", "clip_norm")


def lift_steps(config: StepConfig) -> Lifted:
  """Takes step settings apart into their structure and their numbers.

  The numbers are those of the algorithm (see `algorithms.lift`), learning rates and norms
  of clipping of the optimizers, and the temperature.

  Args:
    config: step settings.

  Returns:
    A `Lifted`, with paths such as `algorithm.surrogate.clip_high` and
    `optimizer.learning_rate`.
  """
  paths = [f"algorithm.{path}" for path in lift(config.algorithm).numbers]
  paths += [f"{name}.{field}" for name in _OPTIMIZERS for field in OF_OPTIMIZER]
  everything = find_numbers(config)  # an infinite norm is none of them
  return without(config, [x for x in (*paths, "temperature") if x in everything])


def example(structure: StepConfig) -> StepConfig:
  """Fills a structure with ones, for shapes, which no number decides."""
  return join(structure, dict.fromkeys(find_holes(structure), 1.0))
