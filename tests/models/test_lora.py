"""Adapters change nothing at first, then add a matrix of low rank; the base is frozen."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pgax.distributed import make_mesh
from pgax.distributed.partitioning import abstract_params, param_shardings
from pgax.models import Decoder
from pgax.models.lora import LoraConfig, attach, init, merge, merged, shardings
from pgax.models.parameters import init_params
from tests import tiny
from tests.logits import completion_logits

CONFIG = LoraConfig(rank=2, alpha=6.0)
ROLLOUT = tiny.rollout()


@pytest.fixture(scope="module")
def trained():
  """Adapters after training: nothing is zero."""
  fresh = init(CONFIG, tiny.params(), jax.random.key(0))
  return noisy(fresh)


def noisy(tree):
  leaves, structure = jax.tree.flatten(tree)
  keys = jax.random.split(jax.random.key(1), len(leaves))
  noise = [0.1 * jax.random.normal(k, x.shape) for k, x in zip(keys, leaves, strict=True)]
  return jax.tree.unflatten(structure, noise)


def same(left, right):
  return jax.tree.all(jax.tree.map(lambda x, y: bool(jnp.all(x == y)), left, right))


def test_nothing_changes_at_the_start():
  fresh = init(CONFIG, tiny.params(), jax.random.key(0))
  assert same(merge(CONFIG, tiny.params(), fresh), tiny.params())
  a = fresh["params"]["blocks"]["attention"]["query"]["a"]
  assert a.shape == (2, 32, 2) and float(jnp.std(a)) == pytest.approx(32**-0.5, rel=0.3)
  assert fresh["params"]["blocks"]["attention"]["out"]["b"].shape == (2, 2, 32)


def test_merged_is_the_sum_for_every_layer(trained):
  result = merge(CONFIG, tiny.params(), trained)["params"]["blocks"]["attention"]
  base, change = (x["params"]["blocks"]["attention"] for x in (tiny.params(), trained))
  x = np.random.default_rng(0).normal(size=(5, 32)).astype(np.float32)
  for layer in range(2):
    a, b = (np.asarray(change["query"][name][layer]) for name in "ab")
    expected = np.einsum("ne,ehd->nhd", x, base["query"][layer])
    expected += 3.0 * np.einsum("nr,rhd->nhd", x @ a, b)
    actual = np.einsum("ne,ehd->nhd", x, result["query"][layer])
    np.testing.assert_allclose(actual, expected, atol=1e-5)
    difference = np.asarray(result["out"][layer] - base["out"][layer]).reshape(32, 32)
    assert np.linalg.matrix_rank(difference, tol=1e-4) == 2


def loss_of(model):
  r = ROLLOUT

  def loss(params):
    logits = completion_logits(
      model, params, r.prompt_tokens, r.prompt_mask, r.tokens, r.token_mask
    )
    return jnp.mean(jnp.where(r.token_mask[..., None], logits, 0) ** 2)

  return loss


EXPERTS = dataclasses.replace(tiny.CONFIG, num_experts=4, experts_per_token=2)


@pytest.mark.parametrize(
  ("config", "targets"),
  [
    (tiny.CONFIG, CONFIG.targets),
    (dataclasses.replace(tiny.CONFIG, tie_embeddings=False), ("*embedding", "*out")),
    (EXPERTS, ("blocks.experts.*",)),
  ],
  ids=["dense", "embeddings", "experts"],
)
def test_beside_the_base_or_merged_is_the_same(config, targets):
  """The gradient reaches adapters only, and is that through merged matrices."""
  model, settings = Decoder(config), dataclasses.replace(CONFIG, targets=targets)
  base = tiny.fresh(model)
  adapters = noisy(init(settings, base, jax.random.key(0)))
  loss = loss_of(model)

  @jax.jit
  def both(base, adapters):
    beside = jax.value_and_grad(
      lambda base, x: loss(attach(settings, base, x)), argnums=(0, 1)
    )
    return beside(base, adapters), jax.value_and_grad(
      lambda x: loss(merge(settings, base, x))
    )(adapters)

  (value, (of_base, gradient)), (expected_value, expected) = both(base, adapters)
  assert not any(bool(jnp.any(x)) for x in jax.tree.leaves(of_base))
  np.testing.assert_allclose(value, expected_value, rtol=1e-5)
  for x, y in zip(jax.tree.leaves(gradient), jax.tree.leaves(expected), strict=True):
    assert jnp.any(y)
    np.testing.assert_allclose(x, y, atol=2e-5 * float(jnp.abs(y).max()))


def test_no_matrix_is_merged_or_differentiated(trained):
  """Temporaries of a gradient are not those of full matrices, as merging needs."""
  wide = dataclasses.replace(tiny.CONFIG, mlp_dim=4096)
  model, settings = Decoder(wide), dataclasses.replace(CONFIG, targets=("blocks.mlp.*",))
  base = jax.eval_shape(lambda: init_params(model, jax.random.key(0)))
  adapters = jax.eval_shape(lambda: init(settings, base, jax.random.key(0)))
  loss = loss_of(model)

  def temporaries(parameters):
    gradient = jax.grad(lambda x, base: loss(parameters(settings, base, x)))
    compiled = jax.jit(gradient).lower(adapters, base).compile()
    return compiled.memory_analysis().temp_size_in_bytes

  matrices = 4 * sum(x.size for x in jax.tree.leaves(base["params"]["blocks"]["mlp"]))
  assert temporaries(merged) - temporaries(attach) > matrices


def test_the_base_is_shared(trained):
  before = jax.tree.map(np.array, tiny.params())
  result = merge(CONFIG, tiny.params(), trained)
  assert result["params"]["embedding"] is tiny.params()["params"]["embedding"]
  assert same(before, tiny.params())


def test_targets_are_patterns():
  config = dataclasses.replace(CONFIG, targets=("blocks.*.[gq]*", "unembedding"))
  model = Decoder(dataclasses.replace(tiny.CONFIG, tie_embeddings=False))
  params = tiny.fresh(model)
  adapters = init(config, params, jax.random.key(0))["params"]
  assert set(adapters) == {"blocks", "unembedding"}
  assert {k: set(v) for k, v in adapters["blocks"].items()} == {
    "attention": {"query"},
    "mlp": {"gate"},
  }
  with pytest.raises(
    ValueError, match=r"'blocks.x' *, which matches none of blocks.attention"
  ):
    init(dataclasses.replace(CONFIG, targets=("blocks.x",)), params, jax.random.key(0))
  with pytest.raises(ValueError, match="rank is 0; it must be at least 1 for adapters"):
    init(dataclasses.replace(CONFIG, rank=0), params, jax.random.key(0))
  with pytest.raises(ValueError, match="none of"):  # a norm is not a matrix
    init(dataclasses.replace(CONFIG, targets=("*norm*",)), params, jax.random.key(0))


def test_adapters_are_sharded_like_their_matrices(trained):
  mesh = make_mesh()
  places = shardings(
    CONFIG, abstract_params(tiny.MODEL, mesh), param_shardings(tiny.MODEL, mesh)
  )
  query = places["params"]["blocks"]["attention"]["query"]
  assert tuple(query["a"].spec) == (None, "fsdp", None)
  assert tuple(query["b"].spec) == (None, None, "model", None)
  assert jax.tree.structure(places) == jax.tree.structure(trained)
  jax.device_put(trained, places)


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"rank": -1}, "lora.rank is -1; it must be at least 0"),
    ({"alpha": float("nan")}, "lora.alpha is nan; it must be positive"),
    ({"targets": ()}, "lora.targets is empty"),
  ],
)
def test_bad_settings(changes, message):
  with pytest.raises(ValueError, match=message):
    LoraConfig(**changes)
