"""The calls from a policy step to the loss, counted from a stack."""

import traceback

import jax
import pytest

from pgax import algorithms
from pgax.learner import LearnerConfig, gradients
from pgax.learner.policy_step import policy_step
from tests import tiny


@pytest.mark.parametrize("config", [{}, {"microbatches": 2, "length_buckets": 2}])
def test_few_calls_lead_to_the_loss(monkeypatch, config):
  stacks = []

  def loss(*args, **kwargs):
    frames = [x for x in traceback.extract_stack() if "/pgax/" in x.filename]
    stacks.append([x.name for x in frames])
    return algorithms.loss(*args, **kwargs)

  monkeypatch.setattr(gradients, "loss", loss)
  algorithm = algorithms.grpo()
  learner = tiny.learner(algorithm, config=LearnerConfig(**config))
  arguments = tiny.state(algorithm), tiny.rollout(), tiny.feedback()
  jax.eval_shape(lambda *x: policy_step(learner, *x), *arguments)
  for names in stacks:
    assert names[0] == "policy_step" and len(names) <= 6
    expected = ["accumulate_gradients", "add_microbatch", "policy_objective"]
    assert names[-3:] == expected
