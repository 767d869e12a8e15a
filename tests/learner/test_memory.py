"""What an update holds, by the program that is compiled for it."""

import dataclasses

import jax
import pytest

from pgax import algorithms
from pgax.distributed import make_mesh
from pgax.learner.compiled import compiled_steps
from pgax.learner.config import LearnerConfig, StepConfig
from tests import tiny
from tests.jaxprs import largest

LENGTH = 1024


@pytest.mark.parametrize("remat", [False, True])
def test_nothing_is_quadratic_in_the_length(remat):
  """Masks depend on positions alone: a scan over layers would compute them ahead."""
  config = dataclasses.replace(tiny.CONFIG, attention="blockwise", remat=remat)
  learner = LearnerConfig(length_buckets=1)
  steps = compiled_steps(
    StepConfig(config, algorithms.grpo(), learner=learner), make_mesh()
  )
  data = tiny.rollout(n=2, group=3, length=LENGTH), tiny.feedback(2, 3, LENGTH)
  program = jax.make_jaxpr(lambda *x: steps.policy_step(*x))(steps.abstract, *data)
  # The widest that is linear are inputs of all layers.
  assert largest(program) <= 2 * 3 * LENGTH * tiny.CONFIG.vocab_size < LENGTH**2 * 2
