"""Mixture of experts: products by group, routing, its loss, and its replay."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func

from pgax.models import Decoder
from pgax.models.cache import token_positions
from pgax.models.grouped import grouped_product
from pgax.models.lora import LoraConfig, init, merge
from pgax.models.routing import balance_weights, count_choices
from pgax.models.scoring import completion_features
from pgax.sampling import Options, sample
from tests import tiny

MODEL = Decoder(dataclasses.replace(tiny.CONFIG, num_experts=5, experts_per_token=2))


@pytest.fixture(scope="module")
def params():
  """Parameters whose router is not nearly uniform."""
  fresh = tiny.fresh(MODEL)
  return jax.tree_util.tree_map_with_path(
    lambda path, x: x * 3 if path[-1].key == "router" else x, fresh
  )


@pytest.mark.parametrize("sizes", [(7, 0, 20, 1, 12), (0, 0, 40, 0, 0), (8, 8, 8, 8, 8)])
def test_a_group_is_multiplied_by_its_matrix(sizes):
  rng = np.random.default_rng(0)
  rows = rng.normal(size=(40, 6)).astype(np.float32)
  matrices = rng.normal(size=(5, 6, 3)).astype(np.float32)
  groups = np.repeat(np.arange(5), sizes)
  weight = rng.normal(size=(40, 3)).astype(np.float32)

  @jax.jit
  def product(rows, matrices):
    out = grouped_product(rows, matrices, jnp.array(sizes, jnp.int32))
    return jnp.sum(out * weight), out

  gradient = jax.jit(jax.grad(product, argnums=(0, 1), has_aux=True))
  (to_rows, to_matrices), out = gradient(rows, matrices)
  np.testing.assert_allclose(
    out, np.einsum("mk,mkf->mf", rows, matrices[groups]), rtol=1e-4, atol=1e-5
  )
  np.testing.assert_allclose(
    to_rows, np.einsum("mf,mkf->mk", weight, matrices[groups]), rtol=1e-4, atol=1e-5
  )
  for i, matrix in enumerate(to_matrices):
    expected = rows[groups == i].T @ weight[groups == i]
    np.testing.assert_allclose(matrix, expected, rtol=1e-4, atol=1e-5)


def test_the_balance_loss_is_that_of_transformers():
  rng = np.random.default_rng(0)
  mask = np.arange(9) < np.array([9, 5, 2])[:, None]
  logits = 2 * rng.normal(size=(2, *mask.shape, 5)).astype(np.float32)  # two layers
  expected = load_balancing_loss_func(
    tuple(torch.tensor(x.reshape(-1, 5)) for x in logits), 5, 2, torch.tensor(mask)
  )
  probs = jax.nn.softmax(logits)
  chosen = jnp.moveaxis(jax.lax.top_k(probs, 2)[1], 0, -2)
  counts, tokens = count_choices(chosen, mask, 5)
  total = jnp.sum(jnp.where(mask[..., None], probs, 0), axis=(0, 1, 2))
  assert tokens == 2 * mask.sum() and counts.sum() == 2 * tokens
  loss = jnp.sum(balance_weights(counts, tokens) * total)
  assert loss == pytest.approx(float(expected), rel=1e-5) and loss > 2.02  # balanced: 2


def test_the_load_counts_real_tokens(params):
  mask = np.arange(6) < np.array([6, 4])[:, None]
  tokens = np.random.default_rng(0).integers(3, 259, (2, 1, 6))
  positions = token_positions(mask)[:, None]
  read = functools.partial(MODEL.apply, method=MODEL.features)
  routing = jax.jit(read)(params, tokens, positions).routing
  assert routing.experts.shape == (2, 1, 6, 2, 2) and routing.experts.dtype == jnp.uint8
  counts, count = count_choices(routing.experts, mask[:, None], 5)
  np.testing.assert_array_equal(routing.load.chosen, counts)
  assert routing.load.tokens == count == 2 * 10
  assert float(jnp.sum(routing.load.probability)) == pytest.approx(20, rel=1e-5)
  assert np.all(routing.experts[..., 0] != routing.experts[..., 1])


@pytest.fixture(scope="module")
def sampled(params):
  """Completions with the experts that computed them, decoded in fewer slots."""
  tokens, mask = tiny.prompts()
  return sample(
    MODEL,
    params,
    tokens,
    mask,
    jax.random.key(0),
    Options(np.array([5])),
    group=2,
    max_tokens=6,
    slots=4,
    record_experts=True,
  )


def features(params, rollout, experts):
  arguments = (rollout.prompt_tokens, rollout.prompt_mask)
  arguments += (rollout.tokens, rollout.token_mask)
  return completion_features(MODEL, params, *arguments, experts)[0]


def test_replaying_the_samplers_experts_changes_nothing(params, sampled):
  run = jax.jit(features)
  chosen, replayed = (run(params, sampled, x) for x in (None, sampled.experts))
  real = np.asarray(sampled.token_mask)
  assert real.sum() > 30
  np.testing.assert_allclose(replayed[real], chosen[real], rtol=1e-5, atol=1e-5)
  other = jax.tree.map(lambda x: (x + 1) % 5, sampled.experts)
  assert np.abs(run(params, sampled, other) - chosen)[real].max() > 0.1


def test_gradients_of_a_replay_reach_the_routers_weights(params, sampled):
  # One layer's tokens all go to experts 1 and 3, although the router prefers others.
  forced = jax.tree.map(
    lambda x: jnp.broadcast_to(jnp.array([1, 3], x.dtype), x.shape), sampled.experts
  )

  @jax.jit
  @jax.grad
  def gradient(params):
    return jnp.sum(features(params, sampled, forced) * sampled.token_mask[..., None])

  experts = gradient(params)["params"]["blocks"]["experts"]
  for name in ("gate", "up", "down"):
    used = np.abs(experts[name]).max(axis=(0, 2, 3)) > 0
    np.testing.assert_array_equal(used, [False, True, False, True, False])
  router = np.abs(experts["router"]).max(axis=(0, 1))
  # Weights that sum to 1 depend on the logits of the chosen experts alone.
  assert router[[1, 3]].min() > 1e-3 and router[[0, 2, 4]].max() < 1e-5


def test_adapters_of_experts(params):
  config = LoraConfig(rank=2, alpha=6.0, targets=("blocks.experts.*",))
  adapters = init(config, params, jax.random.key(0))
  inner = adapters["params"]["blocks"]["experts"]
  assert inner["gate"]["a"].shape == (2, 5, 32, 2)
  assert inner["down"]["b"].shape == (2, 5, 2, 32)
  assert inner["router"]["b"].shape == (2, 2, 5)
  trained = jax.tree.map(lambda x: x + 0.1, adapters)
  gate = merge(config, params, trained)["params"]["blocks"]["experts"]["gate"]
  a, b = (trained["params"]["blocks"]["experts"]["gate"][name][1, 3] for name in "ab")
  before = params["params"]["blocks"]["experts"]["gate"][1, 3]
  np.testing.assert_allclose(gate[1, 3], before + 3.0 * a @ b, rtol=1e-4, atol=1e-5)
  with pytest.raises(ValueError, match=r"'blocks.mlp.\*'.* none of .*blocks.experts.down"):
    init(LoraConfig(rank=2), params, jax.random.key(0))


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"num_experts": -1}, "num_experts is -1; it must be at least 0"),
    ({"num_experts": 4}, "experts_per_token is 0; it must be from 1 to .* is 4"),
    ({"experts_per_token": 2}, "experts_per_token is 2; it must be from 0 to .* is 0"),
    (
      {"num_experts": 4, "experts_per_token": 1, "mlp_bias": True},
      "mlp_bias is True; it must be False with experts",
    ),
  ],
)
def test_bad_settings(changes, message):
  with pytest.raises(ValueError, match=message):
    dataclasses.replace(tiny.CONFIG, **changes)
