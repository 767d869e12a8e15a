"""Completions in microbatches: each is computed once, at the least width that holds it."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pgax import algorithms
from pgax.distributed.microbatches import join, split
from pgax.learner import LearnerConfig
from pgax.learner.microbatches import Microbatch, divide, map_rows, plan_rows
from pgax.learner.policy_step import policy_step
from tests import tiny

N, G, T = 6, 3, 8


def plan(lanes=1, shape=(N, G, T), **settings):
  learner = tiny.learner(algorithms.grpo(), config=LearnerConfig(**settings), lanes=lanes)
  return plan_rows(learner, shape)


def rollout(lengths):
  """Completions whose tokens are all different."""
  mask = jnp.arange(T) < jnp.asarray(lengths).reshape(N, G, 1)
  tokens = jnp.where(mask, jnp.arange(1, N * G * T + 1).reshape(N, G, T), 0)
  given = tiny.rollout(n=N, group=G, length=T)
  return given.replace(tokens=tokens, token_mask=mask, action_mask=mask)


def seen(part: Microbatch):
  """The tokens of a microbatch, the prompt of each completion, and the width."""
  tokens = part.completions.tokens
  assert part.completions.prompt_tokens is None
  rows = tokens.shape[:2]
  prompts = jnp.zeros(rows, int) if part.prompts is None else part.prompts
  return tokens, prompts, jnp.full(rows, tokens.shape[-1])


@pytest.mark.parametrize("lanes", [1, 2, 6])
@pytest.mark.parametrize(("microbatches", "buckets"), [(1, 1), (4, 1), (3, 3), (1, 4)])
def test_every_completion_is_computed_once(lanes, microbatches, buckets):
  chosen = plan(lanes, microbatches=microbatches, length_buckets=buckets)
  run = jax.jit(lambda x: map_rows(chosen, seen, x))
  generator = np.random.default_rng(0)
  for lengths in (
    generator.integers(0, T + 1, N * G),
    np.zeros(N * G, int),
    np.full(N * G, T),
    np.arange(N * G) % 2,
  ):
    given = rollout(lengths)
    tokens, prompts, widths = run(given)
    np.testing.assert_array_equal(tokens, given.tokens)
    if not chosen.whole:
      expected = np.arange(N).reshape(lanes, -1) % (N // lanes)
      np.testing.assert_array_equal(prompts, np.repeat(expected.reshape(N, 1), G, 1))
    assert np.all(np.asarray(widths) >= lengths.reshape(N, G))
    if buckets > 1:
      assert np.all(np.asarray(widths) == T) == (lengths.min() > T - T // buckets)


def test_groups_that_are_compared_stay_together():
  learner = tiny.learner(
    algorithms.tpo(), config=LearnerConfig(microbatches=4, length_buckets=4), lanes=2
  )
  chosen = plan_rows(learner, (N, G, T))
  assert chosen.microbatches == 3 and chosen.unit == chosen.rows == G
  given = rollout(np.random.default_rng(0).integers(0, T + 1, N * G))
  tokens, prompts, _ = map_rows(chosen, seen, given)
  np.testing.assert_array_equal(tokens, given.tokens)
  assert np.all(np.ptp(np.asarray(prompts), axis=1) == 0)
  order = np.asarray(divide(chosen, given).order)
  np.testing.assert_array_equal(order // G, order[..., :1] // G + np.zeros(G, int))


def test_a_surrogate_of_another_kind_keeps_groups():
  def surrogate(logp, batch):
    return algorithms.parts.Unclipped()(logp, batch)

  other = dataclasses.replace(algorithms.grpo(), surrogate=surrogate)
  assert other.compares_completions and not algorithms.grpo().compares_completions


def test_lengths_that_spread_uniformly_cost_little_more_than_half():
  chosen = plan(microbatches=6, length_buckets=6)
  widths = map_rows(chosen, seen, rollout(np.arange(N * G) * T // (N * G - 1)))[2]
  assert np.mean(np.asarray(widths)) < 0.65 * T


def test_tokens_may_have_gaps():
  given = rollout(np.full(N * G, 2))
  mask = given.token_mask.at[0, 0].set(jnp.arange(T) == T - 1)
  widths = map_rows(plan(length_buckets=4), seen, given.replace(token_mask=mask))[2]
  assert widths[0, 0] == T and widths[0, 1] == 2


def test_buckets_of_long_completions():
  widths = [plan(shape=(N, G, length)).widths for length in (128, 255, 512, 6000)]
  assert widths[:2] == [(128,), (255,)]
  assert widths[2:] == [(128, 256, 384, 512), tuple(range(1000, 6001, 1000))]
  assert plan(length_buckets=10**9).widths == tuple(range(1, T + 1))
  assert plan(shape=(N, G, 512), microbatches=5).microbatches == 8
  assert plan(shape=(1, 2, 512), microbatches=5).microbatches == 2


def test_lanes_divide_the_prompts():
  with pytest.raises(ValueError, match="lanes is 4; it must divide the 6 prompts"):
    plan(lanes=4)


def test_a_part_of_a_group_needs_a_part_of_its_memory():
  """A single prompt with many completions."""

  def temporaries(microbatches):
    config = LearnerConfig(microbatches=microbatches, length_buckets=1)
    algorithm = algorithms.grpo(kl_coef=0.0)
    learner = tiny.learner(algorithm, config=config)
    arguments = (
      tiny.state(algorithm),
      tiny.rollout(n=1, group=32, length=32),
      tiny.feedback(n=1, group=32, length=32),
    )
    lowered = jax.jit(lambda *x: policy_step(learner, *x)).lower(*arguments)
    return lowered.compile().memory_analysis().temp_size_in_bytes

  assert temporaries(32) < 0.3 * temporaries(1)


def test_split_is_undone_by_join():
  x = {"a": jnp.arange(24).reshape(12, 2)}
  assert split(x, 3)["a"].shape == (3, 4, 2)
  np.testing.assert_array_equal(join(split(x, 3))["a"], x["a"])
