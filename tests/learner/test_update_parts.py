"""Parts of an update in the train step: entropy bonus, target KL, values at the end."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from pgax import algorithms, kl
from pgax.algorithms import EntropyBonus, parts
from pgax.distributed.mesh import make_mesh
from pgax.learner import StepConfig, compiled_steps
from pgax.learner.config import OptimizerConfig
from pgax.learner.microbatches import one_microbatch
from pgax.learner.optimizer import make_optimizer
from pgax.models import ScalarDecoder
from pgax.models.prompts import prompt_states, read_prompts
from pgax.models.scoring import completion_outputs
from pgax.ops.entropy import AdaptiveController
from tests import tiny

ROLLOUT, FEEDBACK = tiny.rollout(), tiny.feedback()
SILENT = FEEDBACK.replace(rewards=jnp.zeros_like(FEEDBACK.rewards))
ADAM = make_optimizer(OptimizerConfig(learning_rate=1e-2, warmup_steps=0))


def updated(algorithm, steps=1, feedback=FEEDBACK, optimizer=ADAM):
  step = tiny.policy_step(algorithm, optimizer)
  state, metrics = tiny.state(algorithm, optimizer), []
  for _ in range(steps):
    state, update = step(state, ROLLOUT, feedback)
    metrics.append({name: float(x) for name, x in update.metrics.items()})
  return state, metrics


def same_bits(a, b):
  pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
  return all(np.array_equal(x, y) for x, y in pairs)


def optimizer_steps(state):
  counts = optax.tree.get_all_with_path(state.opt_state, "count")
  return {int(count) for _, count in counts}


def test_a_bonus_raises_the_entropy():
  bonus = EntropyBonus(kl.FixedController(1.0))
  algorithm = dataclasses.replace(algorithms.dr_grpo(), entropy=bonus)
  _, metrics = updated(algorithm, 3, SILENT)
  entropies = [x["entropy"] for x in metrics]
  assert entropies == sorted(entropies) and entropies[-1] > entropies[0] + 0.05
  assert metrics[0]["entropy/coef"] == 1 and metrics[0]["loss/policy"] == 0
  assert metrics[0]["loss"] == pytest.approx(-metrics[0]["loss/entropy"])


def test_the_adaptive_coefficient_is_part_of_the_state():
  controller = AdaptiveController(target=100.0, step=0.25)  # out of reach
  algorithm = dataclasses.replace(algorithms.dr_grpo(), entropy=EntropyBonus(controller))
  state, metrics = updated(algorithm, 3, SILENT)
  assert [x["entropy/coef"] for x in metrics] == [0.0, 0.25, 0.5]
  assert state.algorithm_state["entropy"].coef == 0.75
  assert metrics[0]["grad_norm"] == 0 and metrics[1]["grad_norm"] > 0
  assert state.algorithm_state["entropy"].entropy == pytest.approx(metrics[-1]["entropy"])


def test_an_infinite_target_changes_no_bit():
  plain = algorithms.grpo(epochs=2, minibatches=2)
  infinite = dataclasses.replace(plain, target_kl=float("inf"))
  far = dataclasses.replace(plain, target_kl=1e9)  # the other program, never stopped
  state, (metrics,) = updated(plain)
  same, _ = updated(infinite)
  assert same_bits((state.params, state.opt_state), (same.params, same.opt_state))
  reached, (others,) = updated(far)
  assert metrics["update/optimizer_steps"] == others["update/optimizer_steps"] == 4
  for a, b in zip(*map(jax.tree.leaves, (state.params, reached.params)), strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
  for name, value in metrics.items():
    assert others[name] == pytest.approx(value, rel=1e-4, abs=1e-6), name


def test_nothing_changes_after_the_stop():
  def stopping(epochs):
    algorithm = dataclasses.replace(algorithms.grpo(epochs=epochs), target_kl=1e-6)
    return updated(algorithm)

  # The first step starts at a divergence of 0; the second is computed and not taken.
  two, (metrics,) = stopping(2)
  six, (others,) = stopping(6)
  assert optimizer_steps(two) == optimizer_steps(six) == {1}
  assert same_bits((two.params, two.opt_state), (six.params, six.opt_state))
  assert metrics["update/optimizer_steps"] == others["update/optimizer_steps"] == 1
  assert metrics["update/skipped"] == 0
  assert metrics["kl/old"] > 1e-6
  for name in ("loss", "grad_norm", "entropy", "kl/old", "ratio/clip_fraction"):
    assert others[name] == pytest.approx(metrics[name], rel=1e-5, abs=1e-7), name
  once, _ = updated(algorithms.grpo(epochs=1))
  for a, b in zip(*map(jax.tree.leaves, (once.params, two.params)), strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)


def test_steps_until_the_target_are_taken():
  slow = OptimizerConfig(learning_rate=5e-4, warmup_steps=0)

  def count(target):
    algorithm = dataclasses.replace(algorithms.grpo(epochs=6), target_kl=target)
    steps = compiled_steps(StepConfig(tiny.CONFIG, algorithm, optimizer=slow), make_mesh())
    programs.add(steps.policy_step.program)
    state = tiny.state(algorithm, make_optimizer(slow))
    _, update = steps.policy_step(state, ROLLOUT, FEEDBACK)
    return int(update.metrics["update/optimizer_steps"])

  programs = set()
  counts = [count(target) for target in (1e-6, 1e-2, 1e6)]
  assert counts[0] == 1 and counts[2] == 6 and 1 < counts[1] < 6
  assert len(programs) == 1  # the target is an argument


def test_tokens_of_high_entropy_alone_change_the_update():
  plain = algorithms.grpo(kl_coef=0.0, epochs=2)
  some = dataclasses.replace(plain, token_filter=parts.TopEntropy(0.2))
  (_, (a,)), (_, (b,)) = updated(plain), updated(some)
  assert a["loss/policy"] != b["loss/policy"] and b["grad_norm"] > 0


def test_the_value_at_the_end_is_the_value_before_the_next_token():
  critic = ScalarDecoder(tiny.CONFIG)
  params = tiny.fresh(critic)["params"]
  params = {"params": dict(params) | {"head": jnp.linspace(-1, 1, tiny.CONFIG.embed_dim)}}
  prompts = ROLLOUT.prompt_tokens, ROLLOUT.prompt_mask

  @functools.partial(jax.jit, static_argnums=1)
  def outputs(rollout, to_end=True):
    states = prompt_states(read_prompts(critic, params, *prompts))
    tokens = one_microbatch(rollout).tokens()
    return completion_outputs(critic, params, states, tokens, to_end)

  values, _ = outputs(ROLLOUT, to_end=False)
  # Without its last token, a completion ends where the value before that token is.
  lengths = np.asarray(ROLLOUT.token_mask).sum(-1)
  shorter = ROLLOUT.replace(
    token_mask=jnp.arange(ROLLOUT.tokens.shape[-1]) < (lengths - 1)[..., None]
  )
  _, end = outputs(shorter)
  expected = np.take_along_axis(np.asarray(values), lengths[..., None] - 1, -1)[..., 0]
  np.testing.assert_allclose(end, expected, rtol=1e-5, atol=1e-6)
  inside, last = outputs(ROLLOUT)
  mask = np.asarray(ROLLOUT.token_mask)
  np.testing.assert_allclose(inside[mask], values[mask], rtol=1e-5, atol=1e-6)
  assert np.abs(last - expected).max() > 1e-3


def test_truncated_completions_have_a_value_after_them():
  kept = {"kl_coef": 0.0, "epochs": 1}
  (_, plain), (_, ours) = (
    updated(algorithms.ppo(bootstrap_truncated=x, **kept), 3, SILENT) for x in (False, True)
  )
  # Without rewards, only values after truncated completions are ever above 0.
  assert plain[0]["value/loss"] == ours[0]["value/loss"] == 0  # a head of zeros
  assert plain[-1]["value/loss"] == 0
