"""The critic in the train step: it has its own optimizer, and may be trained alone."""

import dataclasses

import jax
import numpy as np
import optax
import pytest

from pgax import algorithms
from pgax.algorithms import parts
from pgax.distributed.mesh import make_mesh
from pgax.distributed.partitioning import shardings_of
from pgax.learner.learner import Learner
from pgax.learner.policy_step import make_policy_step
from pgax.learner.state import abstract_state, begin_reinforcement, init_state
from tests import tiny

ROLLOUT, FEEDBACK = tiny.rollout(), tiny.feedback()
# One pass a step, and targets that do not move with the values.
PPO = dataclasses.replace(
  algorithms.vc_ppo(epochs=1, kl_coef=0.0),
  critic=algorithms.CriticSpec(
    parts.LambdaReturn(lam=1.0), parts.SquaredError(None), coef=0.5
  ),
)
LEARNER = Learner(tiny.MODEL, PPO, optax.sgd(1e-2), optax.adam(3e-3))
SHARDINGS = shardings_of(abstract_state(LEARNER, make_mesh()))


def fresh(critic_from="policy"):
  state = init_state(LEARNER, make_mesh(), seed=0)
  start = state.params if critic_from == "policy" else critic_from
  return begin_reinforcement(state, LEARNER, SHARDINGS, start)


@pytest.fixture(scope="module")
def critic_step():
  return make_policy_step(dataclasses.replace(LEARNER, learn_policy=False), SHARDINGS)


@pytest.fixture(scope="module")
def train_step():
  return make_policy_step(LEARNER, SHARDINGS)


def arrays(tree):
  return [np.asarray(x) for x in jax.tree.leaves(tree)]


def same(a, b):
  return all(np.array_equal(x, y) for x, y in zip(arrays(a), arrays(b), strict=True))


def test_pretraining_moves_the_critic_alone(critic_step):
  state, start = fresh(), fresh()
  reported = []
  for _ in range(40):
    state, update = critic_step(state, ROLLOUT, FEEDBACK)
    reported.append({name: float(value) for name, value in update.metrics.items()})
  for name in ("params", "opt_state", "frozen"):
    assert same(vars(state)[name], vars(start)[name]), name
  assert not same(state.critic_params, start.critic_params)
  assert reported[0]["value/explained_variance"] == pytest.approx(0, abs=1e-5)  # all zeros
  assert reported[0]["value/mean"] == 0 and reported[0]["grad_norm"] == 0
  assert reported[-1]["value/loss"] < 0.3 * reported[0]["value/loss"]
  assert reported[-1]["value/explained_variance"] > 0.5
  assert critic_step._cache_size() == 1


def test_both_learn_together(train_step):
  state, start = fresh(), fresh()
  state, update = train_step(state, ROLLOUT, FEEDBACK)
  assert not same(state.params, start.params)
  assert not same(state.critic_params, start.critic_params)
  assert float(update.metrics["value/grad_norm"]) > 0
  # The loss is the sum of both, the critic's by its coefficient.
  whole = update.metrics["loss/policy"] + 0.5 * update.metrics["value/loss"]
  assert update.metrics["loss"] == pytest.approx(float(whole), rel=1e-5, abs=1e-6)
  state, _ = train_step(state, ROLLOUT, FEEDBACK)
  assert train_step._cache_size() == 1


def test_each_has_its_own_optimizer(train_step):
  state, start = fresh(), fresh()
  state, update = train_step(state, ROLLOUT, FEEDBACK)
  moved = optax.tree.norm(jax.tree.map(lambda a, b: a - b, state.params, start.params))
  assert moved == pytest.approx(1e-2 * float(update.metrics["grad_norm"]), rel=1e-3)
  head = np.abs(np.asarray(state.critic_params["params"]["head"]))
  np.testing.assert_allclose(head, 3e-3, rtol=1e-2)  # the first step of Adam


def test_where_the_critic_starts_from():
  from_policy, left_fresh, given = fresh(), fresh(None), fresh(tiny.params(7))
  decoder = from_policy.critic_params["params"]["decoder"]
  assert same(decoder, from_policy.params["params"])
  assert not same(left_fresh.critic_params["params"]["decoder"], decoder)
  assert same(given.critic_params["params"]["decoder"], tiny.params(7)["params"])
  for state in (from_policy, left_fresh, given):
    assert np.all(np.asarray(state.critic_params["params"]["head"]) == 0)
  pointers = {x.unsafe_buffer_pointer() for x in jax.tree.leaves(from_policy.params)}
  assert not pointers & {x.unsafe_buffer_pointer() for x in jax.tree.leaves(decoder)}


def test_no_critic_no_critic_step():
  with pytest.raises(ValueError, match="learn_policy is False and the algorithm has no"):
    tiny.learner(algorithms.grpo(), learn_policy=False)


def test_a_binary_head_tells_probabilities():
  part = parts.CrossEntropy()
  assert np.all(np.asarray(part.values(np.zeros(3, np.float32))) == 0.5)
