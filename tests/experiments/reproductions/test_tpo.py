"""TPO's bandits: directions of steps as the paper derives them, and the program."""

import jax
import numpy as np
import pytest

from experiments.reproductions.tpo import bandits
from pgax.study import run_program

# By the standardized scores of one right action of K.
LAMBDA = np.exp(10 / 3)
# How much of a step a context gets by the probability of its right action (section 3.2).
BETA = {
  "PG": lambda p: p,
  "CE": lambda p: np.ones_like(p),
  "DG": lambda p: p / (1 + p),
  "GRPO": lambda p: np.sqrt(p / (1 - p)),
  "TPO": lambda p: p * (LAMBDA - 1) / (1 - p + LAMBDA * p),
}


@pytest.mark.parametrize("method", bandits.CONTEXT_METHODS)
def test_a_step_goes_where_the_paper_says(method):
  program = bandits.many_contexts(method)
  (logits,) = np.asarray(program.start({}, [3]))
  policy = np.asarray(jax.nn.softmax(logits.astype(np.float64)))
  right = np.eye(bandits.CONTEXT_ACTIONS)[0]
  direction = BETA[method](policy[:, :1]) * (right - policy)
  expected = bandits.STEP_LENGTH * direction / np.linalg.norm(direction)
  after, metrics = jax.jit(program.step)({}, logits, (), 0)
  np.testing.assert_allclose(np.asarray(after) - logits, expected, atol=2e-6)
  assert metrics["error"] < 1 - policy[:, 0].mean()


@pytest.mark.parametrize("method", bandits.METHODS)
def test_a_sampled_step_has_its_length_and_helps(method):
  program = bandits.single_context(method)
  metrics = run_program(program, [{}], [0, 1, 2], at_once=3, progress=False)
  errors = metrics["error"][0]
  assert errors.shape == (3, bandits.STEPS)
  np.testing.assert_allclose(errors[:, 0], 0.99, rtol=1e-5)
  assert (errors[:, -1] < 0.01).all()
