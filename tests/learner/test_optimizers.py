"""Every optimizer learns, does what its name says, and is sharded as what it updates."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from pgax import algorithms
from pgax.distributed import make_mesh
from pgax.learner import OptimizerConfig
from pgax.learner.config import OPTIMIZERS
from pgax.learner.optimizer import make_optimizer, optimizer_shardings
from pgax.models.lora import LoraConfig
from tests import tiny

ADAPTERS = {"lora": LoraConfig(rank=2)}


def optimizer_of(name, **settings):
  settings = {"warmup_steps": 0, "learning_rate": 1e-2} | settings
  return make_optimizer(OptimizerConfig(name=name, **settings))


def noise(tree, seed=0):
  leaves, structure = jax.tree.flatten(tree)
  keys = jax.random.split(jax.random.key(seed), len(leaves))
  drawn = [jax.random.normal(k, x.shape) for k, x in zip(keys, leaves, strict=True)]
  return jax.tree.unflatten(structure, drawn)


@pytest.mark.parametrize("moment_dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_quadratic_is_solved(name, moment_dtype):
  optimizer = optimizer_of(name, moment_dtype=moment_dtype, learning_rate=0.1)
  target = tiny.params()
  params = jax.tree.map(jnp.zeros_like, target)

  def distance(params):
    return optax.tree.norm(jax.tree.map(jnp.subtract, params, target))

  @jax.jit
  def solved(params):
    def step(carry, _):
      params, state = carry
      gradient = jax.tree.map(jnp.subtract, params, target)
      updates, state = optimizer.update(gradient, state, params)
      return (optax.apply_updates(params, updates), state), None

    (params, state), _ = jax.lax.scan(step, (params, optimizer.init(params)), length=60)
    return params, state

  after, state = solved(params)
  assert distance(after) < 0.3 * distance(params)
  moments = [x for x in jax.tree.leaves(state) if x.ndim > 1]
  assert {x.dtype.name for x in moments} == {moment_dtype}


@pytest.mark.parametrize("settings", [{}, ADAPTERS], ids=["full", "lora"])
def test_muon_orthogonalizes_each_matrix(settings):
  state = tiny.state(algorithms.grpo(), **settings)
  optimizer = optimizer_of("muon")

  @jax.jit
  def first(params):
    return optimizer.update(noise(params), optimizer.init(params), params)[0]

  updates = first(state.params)
  out = updates["params"]["blocks"]["attention"]["out"]  # [layers, heads, width, embed]
  if settings:
    assert {k: v.shape for k, v in out.items()} == {"a": (2, 4, 8, 2), "b": (2, 2, 32)}
    out = out["a"]
  for layer in np.asarray(out):
    # Five Newton-Schulz iterations bring all but the least singular values to 0.7 to 1.2.
    values = np.linalg.svd(layer.reshape(32, -1), compute_uv=False)
    assert values.max() < 2 * np.quantile(values, 0.1)
    # A step is as large as one of AdamW.
    assert np.sqrt(np.mean(layer**2)) == pytest.approx(0.2 * 1e-2, rel=0.25)
  if not settings:  # AdamW's first step has the same size everywhere
    sizes = np.abs(updates["params"]["embedding"])
    assert 1e-2 < sizes.mean() < 1.5e-2 and sizes.std() < 1e-3 * sizes.mean()


def test_adafactor_holds_rows_and_columns():
  params = {"params": {"blocks": {"mlp": {"gate": jnp.ones((2, 128, 256))}}}}
  state = optimizer_of("adafactor", b1=0.0).init(params)
  shapes = {x.shape for x in jax.tree.leaves(state) if x.ndim}
  assert shapes == {(2, 128), (2, 256), (1,)}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_moments_are_sharded_as_their_parameters(name):
  mesh = make_mesh()
  spec = jax.sharding.PartitionSpec(None, "fsdp", "model")
  sharding = jax.sharding.NamedSharding(mesh, spec)
  gate = jax.ShapeDtypeStruct((2, 128, 256), jnp.float32, sharding=sharding)
  params = {"params": {"blocks": {"mlp": {"gate": gate}}}}
  state = jax.eval_shape(optimizer_of(name).init, params)
  shardings = optimizer_shardings(state, params, mesh)
  leaves = zip(jax.tree.leaves(state), jax.tree.leaves(shardings), strict=True)
  specs = {x.shape: tuple(s.spec) for x, s in leaves}
  expected = {(2, 128, 256): (None, "fsdp", "model"), (): ()}
  if name == "adafactor":
    expected |= {(2, 128): (None, "fsdp"), (2, 256): (None, "model"), (1,): ()}
  if name == "muon":
    expected |= {(3,): ()}  # coefficients of Newton-Schulz iterations
  assert specs == expected
