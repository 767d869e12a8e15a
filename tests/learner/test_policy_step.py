"""The train step: splits change nothing, knobs work, and it is traced once."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from pgax import algorithms, kl
from pgax.distributed.mesh import make_mesh
from pgax.distributed.partitioning import shardings_of
from pgax.learner import LearnerConfig, OptimizerConfig
from pgax.learner.forward import completion_logp
from pgax.learner.optimizer import make_optimizer
from pgax.learner.policy_step import make_policy_step
from pgax.learner.state import abstract_state, init_state
from pgax.types import step_keys
from tests import tiny

ROLLOUT, FEEDBACK = tiny.rollout(), tiny.feedback()
ADAM = make_optimizer(OptimizerConfig(learning_rate=1e-2, warmup_steps=0))


def on_policy(temperature=1.0):
  state = tiny.state(algorithms.grpo())
  logp = jax.jit(lambda p: completion_logp(tiny.MODEL, p, ROLLOUT, temperature)[0])(
    state.params
  )
  return ROLLOUT.replace(logp=jnp.where(ROLLOUT.action_mask, logp, 0))


def update(algorithm, *, feedback=FEEDBACK, rollout=ROLLOUT, **settings):
  step = tiny.policy_step(algorithm, **settings)
  state, update = step(tiny.state(algorithm, **settings), rollout, feedback)
  return state, update.metrics


def assert_same(a, b, **tolerance):
  for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
    np.testing.assert_allclose(x, y, **tolerance)


def one_tpo():
  return algorithms.tpo(epochs=1)  # rounding grows over steps of this size


@pytest.mark.parametrize(
  ("preset", "settings"),
  [
    # Of 16 completions, in groups of parts.
    (algorithms.grpo, {"config": LearnerConfig(microbatches=5, length_buckets=3)}),
    (algorithms.rloo, {"config": LearnerConfig(microbatches=16)}),
    (
      algorithms.dr_grpo,
      {"config": LearnerConfig(microbatches=2, length_buckets=2), "lanes": 2},
    ),
    # These compare the completions of a group, which stay together.
    (one_tpo, {"config": LearnerConfig(microbatches=5, length_buckets=3)}),
    (algorithms.p3o, {"config": LearnerConfig(microbatches=3)}),
    (
      algorithms.copg,
      {"config": LearnerConfig(microbatches=2, length_buckets=2), "lanes": 2},
    ),
  ],
)
def test_microbatches_change_nothing(preset, settings):
  # Lengths differ widely here, so a mean of means would show.
  one, told_one = update(preset())
  parts, told_parts = update(preset(), **settings)
  assert_same(one.params, parts.params, rtol=1e-4, atol=2e-6)
  for name in told_one:
    assert told_parts[name] == pytest.approx(float(told_one[name]), rel=1e-4, abs=1e-6)
  start = tiny.state(preset()).params
  moved = optax.tree.norm(jax.tree.map(jnp.subtract, one.params, start))
  assert moved == pytest.approx(float(told_one["grad_norm"]), rel=1e-3) and moved > 1e-3


def test_first_update_is_on_policy():
  _, metrics = update(algorithms.grpo(), rollout=on_policy())
  assert metrics["ratio/clip_fraction"] == 0 and metrics["kl/ref"] == 0
  assert metrics["ratio/sampler_error"] < 1e-6
  # At ratio 1 the surrogate's value is the mean advantage, which sequence means make 0.
  assert metrics["loss"] == pytest.approx(0, abs=1e-5)
  parts = metrics["loss/policy"] + 0.04 * metrics["loss/kl"]
  assert parts == pytest.approx(float(metrics["loss"]))
  _, wrong = update(algorithms.grpo())  # made-up sampler log-probs
  assert wrong["ratio/sampler_error"] > 0.1


def test_temperature_is_the_policys():
  _, metrics = update(algorithms.grpo(), rollout=on_policy(0.5), temperature=0.5)
  assert metrics["ratio/sampler_error"] == pytest.approx(0, abs=1e-6)
  _, forgotten = update(algorithms.grpo(), rollout=on_policy(0.5))
  assert forgotten["ratio/sampler_error"] > 0.1


@pytest.mark.parametrize(("epochs", "minibatches"), [(1, 1), (3, 1), (2, 2)])
def test_epochs_and_minibatches(epochs, minibatches):
  algorithm = algorithms.grpo(epochs=epochs, minibatches=minibatches)
  state, metrics = update(algorithm, optimizer=ADAM)
  counts = optax.tree.get_all_with_path(state.opt_state, "count")
  assert {int(count) for _, count in counts} == {epochs * minibatches}
  # Only what comes after the first optimizer step is off-policy.
  assert (metrics["ratio/clip_fraction"] > 0) == (epochs * minibatches > 1)


def test_minibatches_estimate_the_same_gradient():
  # With one learning rate tiny enough, steps on all minibatches sum to one whole step,
  # once over, because each is scaled up by their number.
  tiny_sgd = optax.sgd(1e-4)
  whole, _ = update(algorithms.dr_grpo(), optimizer=tiny_sgd)
  parts, _ = update(algorithms.dr_grpo(minibatches=2), optimizer=tiny_sgd)
  start = tiny.state(algorithms.dr_grpo()).params
  for a, b, s in zip(
    *map(jax.tree.leaves, (whole.params, parts.params, start)), strict=True
  ):
    np.testing.assert_allclose(b - s, 2 * (a - s), rtol=0.05, atol=3e-7)


def test_penalty_pulls_towards_the_reference():
  silent = FEEDBACK.replace(rewards=jnp.zeros_like(FEEDBACK.rewards))  # but the penalty's
  algorithm = algorithms.grpo(kl_coef=1.0)
  slow = optax.sgd(0.1)
  step, state = tiny.policy_step(algorithm, slow), tiny.state(algorithm, slow)
  away = jax.tree.map(lambda x: x * 1.2, state.params)
  state, first = step(state.replace(params=away), ROLLOUT, silent)
  _, second = step(state, ROLLOUT, silent)
  assert 0 < second.metrics["kl/ref"] < first.metrics["kl/ref"]
  still, reported = update(algorithms.grpo(kl_coef=0.0), feedback=silent)
  assert reported["kl/coef"] == 0 and reported["grad_norm"] == 0
  assert_same(still.params, tiny.state(algorithm).params)


def test_adaptive_coefficient_moves_with_the_state():
  algorithm = dataclasses.replace(
    algorithms.rloo(),
    kl=algorithms.KLPenalty(kl.k1, kl.AdaptiveController(0.1, 1.0, 160), "reward"),
  )
  state, metrics = update(algorithm)  # at the reference: divergence 0, below the target
  assert metrics["kl/coef"] == pytest.approx(0.1)
  assert state.algorithm_state["kl"] == pytest.approx(0.1 * (1 - 0.2 * 16 / 160))


def test_adaptive_coefficient_follows_its_anchor():
  # At the reference, but moving in one update: only the divergence from the old policy is
  # above the target, and only the penalty anchored there grows.
  controller, rates = kl.AdaptiveController(0.1, 1e-4, 16), optax.sgd(3.0)
  for anchor, expected in (("old", 1.2), ("reference", 0.8)):
    penalty = algorithms.KLPenalty(kl.k3, controller, "loss", anchor)
    algorithm = dataclasses.replace(algorithms.grpo(epochs=3), kl=penalty)
    kept = LearnerConfig(keep_reference=True)
    state, metrics = update(algorithm, optimizer=rates, config=kept)
    assert metrics["kl/ref"] == 0 and metrics["kl/old"] > 1e-4
    assert state.algorithm_state["kl"] == pytest.approx(0.1 * expected)


def test_momentum_does_not_move_where_there_is_nothing():
  step = tiny.policy_step(algorithms.grpo(), ADAM)
  state, _ = step(tiny.state(algorithms.grpo(), ADAM), ROLLOUT, FEEDBACK)
  before = jax.tree.map(jnp.copy, (state.params, state.opt_state))
  nothing = FEEDBACK.replace(valid=jnp.zeros_like(FEEDBACK.valid))
  state, _ = step(state, ROLLOUT, nothing)
  for ours, theirs in zip(
    jax.tree.leaves((state.params, state.opt_state)), jax.tree.leaves(before), strict=True
  ):
    np.testing.assert_array_equal(ours, theirs)


def test_nothing_scorable_is_no_update():
  nothing = FEEDBACK.replace(
    rewards=jnp.full_like(FEEDBACK.rewards, jnp.nan),
    valid=jnp.zeros_like(FEEDBACK.valid),
  )
  state, metrics = update(algorithms.grpo(), feedback=nothing)
  assert metrics["loss"] == 0 and metrics["grad_norm"] == 0
  assert_same(state.params, tiny.state(algorithms.grpo()).params)


def test_traced_once_and_state_donated():
  algorithm = algorithms.grpo(epochs=2, minibatches=2)
  optimizer = make_optimizer(OptimizerConfig())
  learner = tiny.learner(algorithm, optimizer, config=LearnerConfig(microbatches=2))
  shardings = shardings_of(abstract_state(learner, make_mesh()))
  step = make_policy_step(learner, shardings)
  state = first = init_state(learner, make_mesh(), 0)
  for seed in range(3):
    feedback = tiny.feedback(seed=seed)
    state, _ = step(state, tiny.rollout(seed=seed), feedback)
  assert step._cache_size() == 1
  assert int(state.step) == int(state.total_steps) == 3
  assert all(x.is_deleted() for x in jax.tree.leaves(first.params))


def test_no_step_shares_a_key():
  key = jax.random.key(0)
  words = [jax.random.key_data(k) for s in range(50) for k in step_keys(key, s)]
  assert len({tuple(np.asarray(w).tolist()) for w in words}) == 100
