"""Updates that are not finite: not taken, to the bit, and counted."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from pgax import algorithms, kl, surrogates
from pgax.learner.preference_step import (
  RewardModelState,
  make_preference_step,
)
from pgax.learner.supervised_step import make_supervised_step
from pgax.models import ScalarDecoder
from pgax.models.heads import headless
from pgax.ops.finite import all_finite, take_if
from pgax.types import DemonstrationRows
from tests import tiny

ADAM = optax.adam(1e-2)
ROLLOUT, FEEDBACK = tiny.rollout(), tiny.feedback()
_POISON = 99.0
BAD = FEEDBACK.replace(rewards=FEEDBACK.rewards.at[0, 0].set(_POISON))


@dataclasses.dataclass(frozen=True)
class Poisoned:
  """The policy gradient, which is nan for completions with a certain reward."""

  def __call__(self, logp, batch):
    result = surrogates.policy_gradient(logp, batch.advantages)
    bad = (batch.rewards == _POISON)[..., None]
    return result._replace(loss=result.loss * jnp.where(bad, jnp.nan, 1))


def poisoned(**settings):
  return dataclasses.replace(algorithms.grpo(**settings), surrogate=Poisoned())


def same(ours, theirs):
  for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
    np.testing.assert_array_equal(a, b)


def copy(tree):
  return jax.tree.map(jnp.copy, tree)


def test_finite_scalars():
  assert all_finite(jnp.float32(1), jnp.int32(2))
  for bad in (jnp.nan, jnp.inf, -jnp.inf):
    assert not all_finite(jnp.float32(1), jnp.float32(bad))
  same(take_if(jnp.bool_(False), {"a": jnp.array([jnp.nan])}, {"a": jnp.ones(1)}), [1.0])


def test_a_bad_policy_step_changes_nothing_and_the_next_one_learns():
  algorithm = poisoned()
  step = tiny.policy_step(algorithm, ADAM)
  state = tiny.state(algorithm, ADAM)
  before = copy((state.params, state.opt_state, state.algorithm_state))
  state, update = step(state, ROLLOUT, BAD)
  assert update.metrics["update/skipped"] == 1 and jnp.isnan(update.metrics["loss"])
  same((state.params, state.opt_state, state.algorithm_state), before)
  assert int(state.step) == int(state.total_steps) == 1
  # A step that was skipped leaves no trace in those that follow.
  state, update = step(state, ROLLOUT, FEEDBACK)
  assert update.metrics["update/skipped"] == 0 and jnp.isfinite(update.metrics["loss"])
  other, _ = step(tiny.state(algorithm, ADAM), ROLLOUT, FEEDBACK)
  same((state.params, state.opt_state), (other.params, other.opt_state))


def test_only_the_bad_minibatches_are_skipped():
  algorithm = poisoned(epochs=2, minibatches=2)
  step = tiny.policy_step(algorithm, ADAM)
  start = copy(tiny.state(algorithm, ADAM).params)
  state, update = step(tiny.state(algorithm, ADAM), ROLLOUT, BAD)
  assert update.metrics["update/skipped"] == 2  # of four: once an epoch
  counts = optax.tree.get_all_with_path(state.opt_state, "count")
  assert {int(count) for _, count in counts} == {2}
  moved = optax.tree.norm(jax.tree.map(jnp.subtract, state.params, start))
  assert 0 < moved < jnp.inf


def test_a_controller_ignores_what_is_not_finite():
  penalty = algorithms.KLPenalty(kl.k1, kl.AdaptiveController(0.1, 1.0, 160), "reward")
  algorithm = dataclasses.replace(algorithms.grpo(), kl=penalty)
  step = tiny.policy_step(algorithm, ADAM)
  bad, state = tiny.state(algorithm, ADAM), tiny.state(algorithm, ADAM)
  bad = bad.replace(params=jax.tree.map(lambda x: x * jnp.nan, bad.params))
  before = copy(bad.algorithm_state)
  bad, update = step(bad, ROLLOUT, FEEDBACK)
  assert update.metrics["update/skipped"] == 1
  same(bad.algorithm_state, before)
  state, _ = step(state, ROLLOUT, FEEDBACK)
  ours, theirs = jax.tree.leaves((state.algorithm_state, before))
  assert ours != theirs


def test_parameters_that_would_overflow_are_not_taken():
  algorithm, wild = algorithms.grpo(), optax.sgd(1e38)
  step = tiny.policy_step(algorithm, wild)
  start = copy(tiny.state(algorithm, wild).params)
  state, update = step(tiny.state(algorithm, wild), ROLLOUT, FEEDBACK)
  assert update.metrics["update/skipped"] == 1
  assert jnp.isfinite(update.metrics["grad_norm"])  # nothing but the result is bad
  same(state.params, start)


@pytest.mark.parametrize("learning_rate", [1e-2, 1e38])
def test_supervised_steps(learning_rate):
  sgd = optax.sgd(learning_rate)
  learner = tiny.learner(algorithms.grpo(), sgd)
  state = tiny.state(algorithms.grpo(), sgd)
  before = copy(state.params)
  tokens = jnp.arange(24, dtype=jnp.int32).reshape(2, 12)
  ones = jnp.ones_like(tokens)
  rows = DemonstrationRows(
    tokens=tokens, positions=jnp.cumsum(ones, -1) - 1, segments=ones, learned=ones > 0
  )
  state, metrics = make_supervised_step(learner)(state, rows)
  skipped = learning_rate > 1
  assert metrics["update/skipped"] == skipped and int(state.step) == 1
  assert jnp.isfinite(optax.tree.norm(state.params))
  if skipped:
    same(state.params, before)


@pytest.mark.parametrize("learning_rate", [1e-2, 1e38])
def test_preference_steps(learning_rate):
  sgd, model = optax.sgd(learning_rate), ScalarDecoder(headless(tiny.CONFIG))
  params = tiny.fresh(model)
  state = RewardModelState(jnp.int32(0), jax.random.key(0), params, sgd.init(params))
  before = copy(params)
  prompts, pairs = jnp.ones((2, 3), jnp.int32), jnp.ones((2, 2, 4), jnp.int32)
  pairs = pairs.at[:, 0].set(2)
  state, update = make_preference_step(model, sgd)(
    state, prompt_tokens=prompts, prompt_mask=prompts > 0, tokens=pairs, mask=pairs > 0
  )
  skipped = learning_rate > 1
  assert update.metrics["update/skipped"] == skipped and int(state.step) == 1
  assert jnp.isfinite(optax.tree.norm(state.params))
  if skipped:
    same(state.params, before)
