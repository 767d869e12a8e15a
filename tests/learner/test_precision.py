"""Dtypes: what is held in fewer bytes, what that leaves unchanged, and what it costs."""

import dataclasses
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from pgax import algorithms
from pgax.distributed.mesh import make_mesh
from pgax.learner import Learner, LearnerConfig, OptimizerConfig
from pgax.learner.config import OPTIMIZERS
from pgax.learner.optimizer import make_optimizer
from pgax.learner.policy_step import make_policy_step
from pgax.learner.state import abstract_state, init_state
from pgax.models import Decoder
from pgax.models.lora import LoraConfig
from tests import tiny

HALF = Decoder(dataclasses.replace(tiny.CONFIG, dtype="bfloat16"))
ROLLOUT, FEEDBACK = tiny.rollout(), tiny.feedback()
TABLE = Path(__file__).parents[2] / "docs" / "guide.md"


def half_learner(lora=LoraConfig(), optimizer=None, **settings):
  return Learner(
    HALF,
    algorithms.grpo(kl_coef=0.1),
    optimizer or optax.sgd(1e-2),
    lora=lora,
    config=LearnerConfig(**settings),
  )


def stepped(learner):
  state = init_state(learner, make_mesh(), seed=0)
  return state, *make_policy_step(learner)(jax.tree.map(jnp.copy, state), ROLLOUT, FEEDBACK)


def dtypes(tree):
  return {x.dtype.name for x in jax.tree.leaves(tree)}


@pytest.mark.parametrize(
  "lora",
  [
    # Without optimizations products of the two widths are not rounded alike.
    pytest.param(LoraConfig(), marks=pytest.mark.optimized, id="full"),
    pytest.param(LoraConfig(rank=2), id="lora"),
  ],
)
def test_frozen_matrices_in_the_compute_dtype_change_no_number(lora):
  wide = stepped(half_learner(lora, reference_dtype="float32"))
  narrow = stepped(half_learner(lora))
  frozen = "base" if lora.rank else "frozen"
  assert dtypes(getattr(wide[0], frozen)) == {"float32"}
  # Scales are used in float32, so they are held in it.
  assert dtypes(getattr(narrow[0], frozen)) == {"float32", "bfloat16"}
  assert dtypes(narrow[1].params) == {"float32"}
  for name, value in wide[2].metrics.items():
    assert narrow[2].metrics[name] == value, name
  for x, y in zip(*(jax.tree.leaves(s[1].params) for s in (wide, narrow)), strict=True):
    np.testing.assert_array_equal(x, y)


def test_a_trained_matrix_in_bfloat16_loses_small_updates():
  learner = half_learner(optimizer=optax.sgd(1e-5), param_dtype="bfloat16")
  before, after, update = stepped(learner)
  assert dtypes(after.params) == {"float32", "bfloat16"} == dtypes(before.params)
  assert update.metrics["grad_norm"] > 0.01
  query = [s.params["params"]["blocks"]["attention"]["query"] for s in (before, after)]
  np.testing.assert_array_equal(*query)


@pytest.mark.parametrize("moment_dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_moments_of_matrices_in_bfloat16_have_their_own_dtype(name, moment_dtype):
  optimizer = make_optimizer(OptimizerConfig(name=name, moment_dtype=moment_dtype))
  learner = half_learner(optimizer=optimizer, param_dtype="bfloat16")
  start = abstract_state(learner, make_mesh())
  after, _ = jax.eval_shape(make_policy_step(learner), start, ROLLOUT, FEEDBACK)
  moments = [x for x in jax.tree.leaves(after.opt_state) if x.ndim > 1]
  assert {x.dtype.name for x in moments} == {moment_dtype}


def test_gradients_summed_in_bfloat16_are_near():
  def changes(**settings):
    before, after, _ = stepped(half_learner(microbatches=2, **settings))
    return [
      np.asarray(y - x)
      for x, y in zip(*(jax.tree.leaves(s.params) for s in (before, after)), strict=True)
    ]

  apart = False
  for x, y in zip(changes(), changes(grad_dtype="bfloat16"), strict=True):
    np.testing.assert_allclose(y, x, atol=2e-2 * np.abs(x).max())
    apart |= not np.array_equal(x, y)
  assert apart


@pytest.mark.slow
def test_the_compiled_step_sums_gradients_in_fewer_bytes():
  """Temporaries differ by two bytes a parameter: gradients are not widened all at once."""
  large = Decoder(dataclasses.replace(HALF.config, mlp_dim=8192))
  optimizer = make_optimizer(OptimizerConfig())

  def temporaries(dtype):
    learner = half_learner(optimizer=optimizer, microbatches=2, grad_dtype=dtype)
    learner = dataclasses.replace(learner, model=large)
    state = abstract_state(learner, make_mesh())
    compiled = make_policy_step(learner).lower(state, ROLLOUT, FEEDBACK).compile()
    count = sum(x.size for x in jax.tree.leaves(state.params))
    return compiled.memory_analysis().temp_size_in_bytes / count

  assert temporaries("float32") - temporaries("bfloat16") == pytest.approx(2, abs=0.1)


ROWS = {
  "in float32": {"reference_dtype": "float32"},
  "default where products are bfloat16": {},
  "`optimizer.moment_dtype=bfloat16`": {"moment_dtype": "bfloat16"},
  "… and `learner.grad_dtype=bfloat16`": {
    "moment_dtype": "bfloat16",
    "grad_dtype": "bfloat16",
  },
  "… and `learner.param_dtype=bfloat16`": {
    "moment_dtype": "bfloat16",
    "grad_dtype": "bfloat16",
    "param_dtype": "bfloat16",
  },
  "`optimizer.name=muon`": {"name": "muon"},
  "`optimizer.name=adafactor`, `optimizer.b1=0`": {"name": "adafactor", "b1": 0.0},
  "`lora.rank=8`": {"rank": 8},
}


@pytest.mark.parametrize("label", ROWS)
def test_the_table_of_bytes(label):
  """The guide's table, for a model whose matrices of blocks are nearly all it has."""
  settings = dict(ROWS[label])
  names = {"name", "moment_dtype", "b1"}
  optimizer = OptimizerConfig(**{k: settings.pop(k) for k in names & settings.keys()})
  lora = LoraConfig(rank=settings.pop("rank", 0))
  large = dataclasses.replace(HALF.config, embed_dim=2048, mlp_dim=8192)
  learner = dataclasses.replace(
    half_learner(lora, make_optimizer(optimizer), **settings), model=Decoder(large)
  )
  state = abstract_state(learner, make_mesh())
  count = sum(
    x.size for x in jax.tree.leaves(state.params if not lora.rank else state.base)
  )

  def per_parameter(tree, itemsize=None):
    leaves = [
      x for x in jax.tree.leaves(tree) if not jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
    ]
    return sum(x.size * (itemsize or x.dtype.itemsize) for x in leaves) / count

  gradient = jnp.dtype(learner.config.grad_dtype).itemsize
  measured = (
    per_parameter((state.params, state.base)),
    per_parameter(state.opt_state),
    per_parameter(state.frozen["reference"]),
    per_parameter(state.params, gradient),
  )
  (row,) = re.findall(rf"\| {re.escape(label)} \|(.*)\|\n", TABLE.read_text())
  *parts, total = map(float, row.split("|"))
  np.testing.assert_allclose(measured, parts, atol=0.06)
  assert total == pytest.approx(sum(parts))
  assert sum(measured) == pytest.approx(total, abs=0.12)


def test_the_compiled_step_takes_what_the_state_has():
  learner = half_learner()
  state = abstract_state(learner, make_mesh())
  compiled = make_policy_step(learner).lower(state, ROLLOUT, FEEDBACK).compile()
  leaves = jax.tree.leaves((state.params, state.frozen["reference"], state.opt_state))
  held = sum(x.size * x.dtype.itemsize for x in leaves)
  inputs = sum(np.asarray(x).nbytes for x in jax.tree.leaves((ROLLOUT, FEEDBACK)))
  taken = compiled.memory_analysis().argument_size_in_bytes
  assert held <= taken <= held + inputs + 256


@pytest.mark.parametrize(
  ("make", "message"),
  [
    (lambda: LearnerConfig(param_dtype="float16"), "param_dtype is 'float16'; .* bfloat16"),
    (lambda: LearnerConfig(grad_dtype="auto"), "grad_dtype is 'auto'"),
    (lambda: LearnerConfig(reference_dtype=None), "reference_dtype is None; .* auto"),
    (lambda: OptimizerConfig(moment_dtype="int8"), "moment_dtype is 'int8'"),
    (lambda: OptimizerConfig(name="adam"), "name is 'adam'; it must be one of adamw, muon"),
  ],
)
def test_bad_names(make, message):
  with pytest.raises(ValueError, match=message):
    make()
