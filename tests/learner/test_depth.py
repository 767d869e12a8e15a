"""The calls from a policy step to the loss, and from parameters to the decoding loop."""

import traceback

import jax
import pytest

from pgax import algorithms
from pgax.data import byte_tokenizer
from pgax.data.prompts import CollatePrompts
from pgax.learner import LearnerConfig, gradients
from pgax.learner.policy_step import policy_step
from pgax.rewards.pool import InProcess
from pgax.sampling import decode
from pgax.types import Example
from tests import tiny


def calls() -> list[str]:
  """Names of the functions of pgax that are being called."""
  frames = [x for x in traceback.extract_stack() if "/pgax/" in x.filename]
  return [x.name for x in frames]


# From the loop it takes two calls more; see `test_compiled`.
@pytest.mark.parametrize("config", [{}, {"microbatches": 2, "length_buckets": 2}])
def test_from_a_policy_step_to_the_loss(monkeypatch, config):
  stacks = []

  def loss(*args, **kwargs):
    stacks.append(calls())
    return algorithms.loss(*args, **kwargs)

  monkeypatch.setattr(gradients, "loss", loss)
  algorithm = algorithms.grpo()
  learner = tiny.learner(algorithm, config=LearnerConfig(**config))
  arguments = tiny.state(algorithm), tiny.rollout(), tiny.feedback()
  jax.eval_shape(lambda *x: policy_step(learner, *x), *arguments)
  names = ["policy_step", "optimizer_step", "add_microbatch", "policy_objective"]
  assert stacks and all(stack == names for stack in stacks)


def test_from_parameters_to_the_decoding_loop(monkeypatch):
  stacks = []

  def start(*args, **kwargs):  # called where the loop is
    stacks.append(calls())
    return has_unfinished(*args, **kwargs)

  has_unfinished = decode.has_unfinished
  monkeypatch.setattr(decode, "has_unfinished", start)
  config = tiny.run_config()
  collate = CollatePrompts(byte_tokenizer(), 7)  # a shape of this test
  prompts = tiny.Prompts(lambda _: collate([Example(f"{i}+1=", "1") for i in range(4)]))
  sampler = tiny.sampler(max_completion_tokens=3)
  tiny.experience(tiny.rollouts(config, sampler, InProcess(config.reward), prompts))
  names = ["next", "start", "_sample", "__call__", "sample", "_decode", "_run"]
  assert stacks and all(stack == names for stack in stacks)
