"""The load-balancing loss and the replay of a mixture of experts, in the steps."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from pgax import algorithms
from pgax.distributed import make_mesh
from pgax.learner import Learner, LearnerConfig, init_state
from pgax.learner.policy_step import make_policy_step
from pgax.learner.supervised_step import make_supervised_step
from pgax.models import Decoder
from pgax.models.routing import balance_weights, count_choices
from pgax.models.scoring import completion_features
from pgax.types import DemonstrationRows, ExpertChoices
from tests import tiny

MODEL = Decoder(dataclasses.replace(tiny.CONFIG, num_experts=4, experts_per_token=2))
FEEDBACK, ROLLOUT = tiny.feedback(), tiny.rollout()


def learner(**settings):
  return Learner(
    MODEL, algorithms.dr_grpo(), optax.sgd(1.0), config=LearnerConfig(**settings)
  )


def state():
  return init_state(learner(), make_mesh(), 0)


def random_experts(seed=0):
  """Made-up choices, two different experts for each token and layer."""
  rng, layers = np.random.default_rng(seed), MODEL.config.num_layers

  def choices(mask):
    scores = rng.random((*mask.shape, layers, 4))
    return jnp.asarray(np.argsort(scores, axis=-1)[..., :2].astype(np.uint8))

  return ExpertChoices(choices(ROLLOUT.prompt_mask), choices(ROLLOUT.token_mask))


@functools.cache
def compiled(**settings):
  return make_policy_step(learner(**settings))


def update(rollout, **settings):
  result, update = compiled(**settings)(state(), rollout, FEEDBACK)
  return result.params, update.metrics


def assert_same(a, b):
  for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
    np.testing.assert_allclose(x, y, rtol=1e-4, atol=2e-6)


def test_microbatches_change_no_router_loss():
  rollout, coef = ROLLOUT.replace(experts=random_experts()), 0.5
  params, metrics = update(rollout, router_aux_coef=coef)
  again, split_metrics = update(rollout, router_aux_coef=coef, microbatches=4)
  assert_same(params, again)
  value = float(metrics["loss/router_balance"])
  assert split_metrics["loss/router_balance"] == pytest.approx(value, rel=1e-5)
  plain, plain_metrics = update(ROLLOUT)
  assert "loss/router_balance" not in plain_metrics
  difference = metrics["loss"] - plain_metrics["loss"]
  assert difference == pytest.approx(coef * value, rel=1e-3)

  # The loss as written down, from choices and probabilities.
  arrays = (rollout.prompt_tokens, rollout.prompt_mask, rollout.tokens)
  load = jax.jit(
    lambda params: completion_features(MODEL, params, *arrays, rollout.token_mask)[1]
  )(state().params)
  experts = rollout.experts
  prompts = count_choices(experts.prompt, rollout.prompt_mask, 4)
  counts, tokens = count_choices(experts.completion, rollout.token_mask, 4)
  assert load.tokens == tokens + prompts[1]
  weights = balance_weights(counts + prompts[0], load.tokens)
  expected = jnp.sum(weights * load.probability)
  assert value == pytest.approx(float(expected), rel=1e-4)
  router = [tree["params"]["blocks"]["experts"]["router"] for tree in (plain, params)]
  assert float(jnp.abs(router[0] - router[1]).max()) > 1e-4


def test_a_replay_uses_the_rollouts_experts():
  rollout = ROLLOUT.replace(experts=random_experts())
  replayed, _ = update(rollout, router_replay=True)
  other, _ = update(ROLLOUT.replace(experts=random_experts(1)), router_replay=True)
  without, _ = update(ROLLOUT)
  for params in (other, without):
    difference = optax.tree.norm(jax.tree.map(jnp.subtract, replayed, params))
    assert difference > 1e-3


def test_a_rollout_without_experts_is_named():
  with pytest.raises(ValueError, match=r"rollout.experts is None; .*router_replay need"):
    update(ROLLOUT, router_replay=True)
  with pytest.raises(ValueError, match=r"router_aux_coef is 0.1 .*num_experts is 0"):
    tiny.run_config(learner=LearnerConfig(router_aux_coef=0.1))
  with pytest.raises(ValueError, match="router_aux_coef"):
    LearnerConfig(router_aux_coef=-1.0)


def test_the_supervised_step_balances_too():
  tokens = np.random.default_rng(0).integers(3, 259, (4, 6)).astype(np.int32)
  positions = np.broadcast_to(np.arange(6, dtype=np.int32), tokens.shape)
  rows = DemonstrationRows(tokens, positions > 1, positions, np.ones_like(tokens))
  results = []
  for coef, microbatches in ((0.5, 1), (1.0, 4)):
    step = make_supervised_step(learner(router_aux_coef=coef), microbatches=microbatches)
    results.append(step(state(), rows)[1])
  one, four = results
  balance = float(one["loss/router_balance"])
  assert balance >= 1.9
  assert four["loss/router_balance"] == pytest.approx(balance, rel=1e-5)
  assert four["loss"] - one["loss"] == pytest.approx(0.5 * balance, rel=1e-3)
