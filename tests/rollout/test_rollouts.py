"""Rollouts: dynamic sampling within its bound, greedy baselines, steps, chunks."""

import dataclasses
import functools
import threading

import jax
import numpy as np
import pytest

from pgax import algorithms
from pgax.data import byte_tokenizer
from pgax.data.prompts import CollatePrompts
from pgax.learner.policy_step import policy_step
from pgax.rewards.pool import InProcess
from pgax.rollout import ScoringConfig
from pgax.types import Example, StepReward
from tests import tiny

TOKENIZER = byte_tokenizer()
SAMPLER = tiny.sampler(max_completion_tokens=16)
COLLATE = CollatePrompts(TOKENIZER, 5)


def prompts():
  """Batches of four different prompts, counted."""
  return tiny.Prompts(
    lambda n: COLLATE([Example(f"{i}+1=", str(10 * n + i)) for i in range(4)])
  )


def collect(algorithm, reward, seed=0, multiple=1, **changes):
  config = tiny.run_config(algorithm=algorithm, reward=reward, **changes)
  batches = prompts()
  source = tiny.rollouts(config, SAMPLER, InProcess(reward), batches)
  source = dataclasses.replace(source, multiple=multiple)
  experience = tiny.experience(source, seed)
  feedback = jax.device_get(experience.feedback)
  return experience, feedback, experience.metrics, batches.batches


def graded(even_only):
  """A reward that differs in a group, or not, by the prompt's number."""

  def reward(prompt, completion, ground_truth, metadata):
    varies = int(ground_truth) % 2 == 0 or not even_only
    return {"reward": float(len(completion) + sum(map(ord, completion))) if varies else 1.0}

  return reward


def test_without_dynamic_sampling_one_batch_is_used_as_it_is():
  experience, feedback, metrics, batches = collect(algorithms.grpo(), graded(True))
  assert batches == 1 and feedback.valid.all()
  assert feedback.greedy_rewards is None and feedback.step_rewards is None
  assert "sampling/batches" not in metrics
  assert metrics["groups/zero_variance"] == 0.5
  assert metrics["completions/generated"] == 16
  assert [e.ground_truth for e in experience.prompts.examples] == ["10", "11", "12", "13"]


def test_dynamic_sampling_fills_the_batch_with_groups_that_differ():
  experience, feedback, metrics, batches = collect(algorithms.dapo(), graded(True))
  assert batches == metrics["sampling/batches"] == 2 and metrics["sampling/filled"] == 1
  numbers = [e.ground_truth for e in experience.prompts.examples]
  assert numbers == ["10", "12", "20", "22"]
  assert feedback.valid.all() and np.all(np.ptp(feedback.rewards, axis=1) > 0)
  # Everything is of the same rows: prompts, completions, texts, rewards.
  assert metrics["completions/generated"] == 32  # what was dropped was sampled too
  assert metrics["groups/zero_variance"] == 0.5
  rollout = jax.device_get(experience.rollout)
  np.testing.assert_array_equal(rollout.prompt_tokens, experience.prompts.tokens)
  for n, k in np.ndindex(4, 4):
    ids = rollout.tokens[n, k][rollout.action_mask[n, k]]
    text = TOKENIZER.decode(ids, skip_special_tokens=True)
    assert text == experience.results.texts[n][k]
    expected = graded(True)("", text, numbers[n], {})["reward"]
    assert feedback.rewards[n, k] == expected


@pytest.mark.parametrize("preset", [algorithms.grpo, algorithms.remax, algorithms.dapo])
def test_what_fills_a_batch_for_the_devices_changes_nothing(preset):
  """Four prompts for three devices: two more are sampled, and that is all."""
  plain, feedback, metrics, batches = collect(preset(), graded(True))
  filled, more, same, as_many = collect(preset(), graded(True), multiple=3)
  assert batches == as_many
  np.testing.assert_equal(same | times(metrics), metrics)
  assert len(more.rewards) == 6 and not more.valid[4:].any()
  for name, value in vars(feedback).items():
    if value is not None:
      np.testing.assert_array_equal(vars(more)[name][:4], value)
  np.testing.assert_array_equal(filled.rollout.tokens[:4], plain.rollout.tokens)
  # The update is the same, to rounding, and so are its minibatches.
  algorithm = dataclasses.replace(preset(), epochs=2, minibatches=2)
  step = jax.jit(functools.partial(policy_step, tiny.learner(algorithm, prompts=4)))
  updates = [
    step(tiny.state(algorithm), experience.rollout, experience.feedback)
    for experience in (plain, filled)
  ]
  losses = [float(update.metrics["loss"]) for _, update in updates]
  assert losses[0] == pytest.approx(losses[1], rel=1e-5, abs=1e-7)
  leaves = (jax.tree.leaves(state.params) for state, _ in updates)
  for ours, theirs in zip(*leaves, strict=True):
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)


def test_dynamic_sampling_is_bounded_and_empty_rows_are_invalid():
  def same(prompt, completion, ground_truth, metadata):
    return (
      graded(False)("", completion, "0", {}) if ground_truth == "21" else {"reward": 1.0}
    )

  experience, feedback, metrics, batches = collect(algorithms.dapo(max_batches=3), same)
  assert batches == 3 and metrics["sampling/filled"] == 0.25
  assert feedback.valid.tolist() == [[True] * 4] + [[False] * 4] * 3
  assert experience.prompts.examples[0].ground_truth == "21"
  _, feedback, metrics, _ = collect(algorithms.dapo(), lambda *_: {"reward": 1.0})
  assert not feedback.valid.any() and metrics["sampling/filled"] == 0


# One batch, greedy completions beside it, and batches until enough groups differ.
PRESETS = [algorithms.grpo, algorithms.remax, algorithms.dapo]


@pytest.mark.parametrize("preset", PRESETS)
def test_chunks_change_nothing(preset):
  whole, feedback, metrics, batches = collect(preset(), graded(True))
  assert batches == (2 if preset is algorithms.dapo else 1)
  for chunks in (2, 4):
    scoring = ScoringConfig(pipeline_chunks=chunks)
    result = collect(preset(), graded(True), scoring=scoring)
    assert result[0].results.texts == whole.results.texts
    assert result[0].prompts.examples == whole.prompts.examples
    ours, theirs = vars(result[0].rollout), vars(whole.rollout)
    for name in ours.keys() - {"logp", "sample_logp"}:
      np.testing.assert_array_equal(ours[name], theirs[name])
    np.testing.assert_allclose(ours["logp"], theirs["logp"], atol=1e-5)
    assert ours["tokens"].sharding == theirs["tokens"].sharding
    np.testing.assert_equal(vars(result[1]), vars(feedback))
    np.testing.assert_equal(result[2] | times(metrics), metrics)
    assert result[3] == batches


def times(metrics):
  return {name: value for name, value in metrics.items() if name.startswith("time/")}


def test_a_chunk_is_scored_while_the_next_is_sampled():
  scoring_began, sampled = threading.Event(), []

  class Waiting:
    tokenizer, mesh, place = SAMPLER.tokenizer, SAMPLER.mesh, SAMPLER.place

    def __call__(self, *arguments):
      if sampled:  # for ever, if scores waited for all that is drawn
        assert scoring_began.wait(timeout=60)
      sampled.append(arguments)
      return SAMPLER(*arguments)

  def runner(jobs):
    scoring_began.set()
    return InProcess(graded(True))(jobs)

  config = tiny.run_config(scoring=ScoringConfig(pipeline_chunks=2))
  tiny.experience(tiny.rollouts(config, Waiting(), runner, prompts()))
  assert len(sampled) == 2


def test_batches_of_a_step_use_different_keys():
  same = tiny.Prompts(lambda _: COLLATE([Example("1+1=", "2")] * 4))
  config = tiny.run_config(
    algorithm=algorithms.dapo(max_batches=2), reward=lambda *_: {"reward": 1.0}
  )
  seen = []
  sampler = SAMPLER

  class Spy:
    tokenizer, mesh, place = sampler.tokenizer, sampler.mesh, sampler.place

    def __call__(self, *arguments):
      seen.append(sampler(*arguments))
      return seen[-1]

  tiny.experience(tiny.rollouts(config, Spy(), InProcess(config.reward), same))
  first, second = (np.asarray(rollout.tokens) for rollout in seen)
  assert np.any(first != second)


def test_greedy_baseline():
  def reward(prompt, completion, ground_truth, metadata):
    value = float(sum(map(ord, completion)))
    return {"reward": np.nan if ground_truth == "12" else value}

  _, feedback, metrics, _ = collect(algorithms.remax(), reward)
  assert np.isfinite(feedback.greedy_rewards).tolist() == [True, True, False, True]
  assert metrics["completions/generated"] == 16 + 4
  _, again, _, _ = collect(algorithms.remax(), reward, seed=1)
  np.testing.assert_array_equal(again.greedy_rewards, feedback.greedy_rewards)
  assert np.any(again.rewards != feedback.rewards)


def test_steps():
  def first_and_last(prompt, completion, ground_truth, metadata):
    return [StepReward(len(completion), 2.0)] if completion else []

  experience, feedback, _, _ = collect(
    algorithms.grpo_process(), graded(False), step_reward=first_and_last
  )
  mask = np.asarray(experience.rollout.action_mask)
  last = mask.sum(-1) - 1
  for n, k in np.ndindex(4, 4):
    if experience.results.texts[n][k]:
      assert np.flatnonzero(feedback.step_ends[n, k]).tolist() == [last[n, k]]
      assert feedback.step_rewards[n, k, last[n, k]] == 2.0
  assert feedback.step_ends.any()


@pytest.mark.parametrize("preset", [algorithms.dapo, algorithms.remax])
def test_the_key_decides(preset):
  one, same, other = (collect(preset(), graded(False), seed=s)[1] for s in (0, 0, 1))
  np.testing.assert_array_equal(one.rewards, same.rewards)
  assert np.any(one.rewards != other.rewards)
