"""The state: the optimizer's settings, and what a new stage begins with."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from pgax import algorithms
from pgax.distributed.mesh import make_mesh
from pgax.distributed.partitioning import shardings_of
from pgax.learner import REINFORCEMENT, OptimizerConfig
from pgax.learner.optimizer import make_optimizer
from pgax.learner.state import abstract_state, begin_reinforcement, init_state
from tests import tiny


def _steps(config, gradients, param=1.0):
  """The parameter after each gradient."""
  optimizer = make_optimizer(config)
  params = {"matrix": jnp.full((1, 1), param), "vector": jnp.full((1,), param)}
  state, seen = optimizer.init(params), []
  for gradient in gradients:
    updates, state = optimizer.update(
      jax.tree.map(lambda x, g=gradient: jnp.full_like(x, g), params), state, params
    )
    params = optax.apply_updates(params, updates)
    seen.append({k: float(v.squeeze()) for k, v in params.items()})
  return seen


def test_warm_up_and_constant():
  rate = {"learning_rate": 0.1, "b1": 0.0, "b2": 0.0}
  seen = _steps(OptimizerConfig(warmup_steps=2, **rate), [1.0] * 4)
  np.testing.assert_allclose(
    [x["vector"] for x in seen], [1.0, 0.95, 0.85, 0.75], atol=1e-5
  )
  seen = _steps(OptimizerConfig(warmup_steps=0, **rate), [1.0, 1.0])
  np.testing.assert_allclose([x["vector"] for x in seen], [0.9, 0.8], atol=1e-5)


def test_decay_to_zero():
  config = OptimizerConfig(0.1, warmup_steps=1, decay_steps=3, b1=0.0, b2=0.0)
  seen = [x["vector"] for x in _steps(config, [1.0] * 5)]
  np.testing.assert_allclose(np.diff(seen), [-0.1, -0.05, 0, 0], atol=1e-5)


def test_weight_decay_spares_vectors():
  (seen,) = _steps(OptimizerConfig(0.1, warmup_steps=0, weight_decay=0.5), [0.0])
  assert seen["vector"] == 1.0 and seen["matrix"] == pytest.approx(0.95)


def test_moments_and_clipping():
  # The global norm of these two gradients is 10 * sqrt(2); clipped, each is 1/sqrt(2).
  optimizer = make_optimizer(OptimizerConfig(clip_norm=1.0, b1=0.9, b2=0.8))
  params = {"a": jnp.ones(1), "b": jnp.ones(1)}
  _, state = optimizer.update(
    jax.tree.map(lambda x: 10 * x, params), optimizer.init(params), params
  )
  (adam,) = [
    s
    for s in jax.tree.leaves(state, is_leaf=lambda s: hasattr(s, "mu"))
    if hasattr(s, "mu")
  ]
  assert adam.mu["a"][0] == pytest.approx(0.1 / np.sqrt(2), rel=1e-5)
  assert adam.nu["b"][0] == pytest.approx(0.2 / 2, rel=1e-5)


@pytest.mark.parametrize(
  ("options", "metrics"),
  [
    ({"learning_rate": -1.0}, "learning_rate is -1.0"),
    ({"learning_rate": float("nan")}, "learning_rate is nan"),
    ({"clip_norm": 0.0}, "clip_norm is 0.0"),
    ({"warmup_steps": 5, "decay_steps": 5}, "decay_steps is 5"),
  ],
)
def test_bad_settings(options, metrics):
  with pytest.raises(ValueError, match=metrics):
    OptimizerConfig(**options)


def test_reference_is_the_policy_after_the_warm_start():
  optimizer = make_optimizer(OptimizerConfig())
  learner = tiny.learner(algorithms.grpo(), optimizer)
  state = init_state(learner, make_mesh(), seed=3)
  state = state.replace(params=jax.tree.map(lambda x: x + 1, state.params))
  shardings = shardings_of(abstract_state(learner, make_mesh()))
  begun = begin_reinforcement(state, learner, shardings)
  for ours, theirs in zip(
    jax.tree.leaves(begun.frozen["reference"]), jax.tree.leaves(state.params), strict=True
  ):
    np.testing.assert_array_equal(ours, theirs)
    assert ours.unsafe_buffer_pointer() != theirs.unsafe_buffer_pointer()
  assert (int(begun.stage), int(begun.step)) == (REINFORCEMENT, 0)
  assert int(begun.total_steps) == int(state.total_steps)


def test_seed_decides():
  optimizer = make_optimizer(OptimizerConfig())

  def embedding(seed):
    state = tiny.state(algorithms.grpo(), optimizer, seed)
    return np.asarray(state.params["params"]["embedding"]), jax.random.key_data(state.key)

  one, same, other = embedding(1), embedding(1), embedding(2)
  np.testing.assert_array_equal(one[0], same[0])
  assert np.any(one[0] != other[0]) and np.any(one[1] != other[1])
