"""Checkpoints: the same bits come back, and what does not fit is named."""

import dataclasses

import jax
import numpy as np
import optax
import pytest

from pgax import algorithms
from pgax.distributed.mesh import make_mesh
from pgax.errors import UserError
from pgax.learner import OptimizerConfig
from pgax.learner.learner import Learner
from pgax.learner.optimizer import make_optimizer
from pgax.learner.state import abstract_state, init_state
from pgax.models import Decoder
from pgax.runs.checkpoint import Checkpoints
from tests import tiny

DATA = {"reinforce": {"next_index": 12}}


def _state(seed=0, model=tiny.MODEL, optimizer=None):
  optimizer = optimizer or optax.adam(1e-3)
  return init_state(Learner(model, algorithms.grpo(), optimizer), make_mesh(), seed)


def words(x):
  """An array as NumPy, a random key as its words."""
  is_key = jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key)
  return np.asarray(jax.random.key_data(x) if is_key else x)


def test_the_same_bits_come_back(tmp_path):
  state = _state(seed=5).replace(step=jax.numpy.int32(3))
  saved = Checkpoints(tmp_path)
  saved.save(7, state, DATA)
  saved.save(7, state, DATA)  # the second call saves nothing
  saved.close()
  again = Checkpoints(tmp_path)
  assert again.latest() == 7
  like = _state(seed=0)
  restored, data = again.restore(like)
  assert data == DATA
  for ours, theirs, shape in zip(
    *map(jax.tree.leaves, (restored, state, like)), strict=True
  ):
    np.testing.assert_array_equal(words(ours), words(theirs))
    assert ours.dtype == theirs.dtype and ours.sharding == shape.sharding
  np.testing.assert_array_equal(
    jax.random.normal(restored.key), jax.random.normal(state.key)
  )


def test_the_last_few_stay(tmp_path):
  checkpoints = Checkpoints(tmp_path, keep=2)
  for number in (1, 2, 3):
    checkpoints.save(number, _state(), DATA)
  assert sorted(int(p.name) for p in (tmp_path / "checkpoints").glob("[0-9]*")) == [
    2,
    3,
  ]


def test_shapes_are_enough_to_restore(tmp_path):
  optimizer = make_optimizer(OptimizerConfig())
  state = _state(seed=5, optimizer=optimizer)
  Checkpoints(tmp_path).save(0, state, DATA)
  like = abstract_state(tiny.learner(algorithms.grpo(), optimizer), make_mesh())
  restored, _ = Checkpoints(tmp_path, read_only=True).restore(like)
  for ours, theirs in zip(jax.tree.leaves(restored), jax.tree.leaves(state), strict=True):
    np.testing.assert_array_equal(words(ours), words(theirs))
    assert ours.sharding == theirs.sharding


def test_read_only_makes_nothing(tmp_path):
  with pytest.raises(UserError, match="holds no checkpoint"):
    Checkpoints(tmp_path, read_only=True).restore(_state())
  assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_said_and_the_last_one_stays(tmp_path, monkeypatch):
  checkpoints = Checkpoints(tmp_path)
  checkpoints.save(0, _state(seed=1), DATA)

  def full(*args, **kwargs):
    raise ValueError(f"{full.text}\nmore")

  full.text = "RESOURCE_EXHAUSTED: No space left on device"
  monkeypatch.setattr(checkpoints._manager, "save", full)
  message = r"checkpoint 1 can't be written to .* \(the last complete one is 0\): RESOURCE"
  with pytest.raises(UserError, match=message):
    checkpoints.save(1, _state(), DATA)
  full.text = f"RESOURCE_EXHAUSTED: in {'folder/' * 80}: No space left on device"
  with pytest.raises(UserError, match=r"RESOURCE_EXHAUSTED: in .* left on device$"):
    checkpoints.save(1, _state(), DATA)
  restored, _ = Checkpoints(tmp_path).restore(_state())
  np.testing.assert_array_equal(words(restored.key), words(_state(seed=1).key))


def test_none_there(tmp_path):
  with pytest.raises(UserError, match="holds no checkpoint"):
    Checkpoints(tmp_path).restore(_state())


def test_other_shapes_and_other_structure_are_named(tmp_path):
  checkpoints = Checkpoints(tmp_path)
  checkpoints.save(0, _state(), DATA)
  wider = Decoder(dataclasses.replace(tiny.CONFIG, mlp_dim=64))
  message = r"mlp.down is \(2, 48, 32\) in the checkpoint and \(2, 64, 32\) in this"
  with pytest.raises(UserError, match=message):
    checkpoints.restore(_state(model=wider))
  deeper = Decoder(dataclasses.replace(tiny.CONFIG, num_layers=3))
  with pytest.raises(
    UserError, match=r"is \(2, 32, .* in the checkpoint and \(3, 32, .* in"
  ):
    checkpoints.restore(_state(model=deeper))
  normed = Decoder(dataclasses.replace(tiny.CONFIG, norm_placement="sandwich"))
  with pytest.raises(UserError, match=r"post_norm.*absent in the checkpoint"):
    checkpoints.restore(_state(model=normed))


def test_half_a_checkpoint_is_none(tmp_path):
  checkpoints = Checkpoints(tmp_path)
  checkpoints.save(0, _state(), DATA)
  checkpoints.close()
  # What a killed process leaves: a folder under its temporary name.
  (tmp_path / "checkpoints" / "9.orbax-checkpoint-tmp").mkdir()
  assert Checkpoints(tmp_path).latest() == 0


@pytest.mark.parametrize("tree", [{"a": np.arange(3), "b": [np.ones(2)]}, (np.zeros(1),)])
def test_any_pytree_can_be_saved(tmp_path, tree):
  arrays = jax.tree.map(jax.numpy.asarray, tree)
  checkpoints = Checkpoints(tmp_path)
  checkpoints.save(4, arrays, {"note": "x"})
  restored, data = checkpoints.restore(jax.tree.map(jax.numpy.zeros_like, arrays))
  assert data == checkpoints.restore_data() == {"note": "x"}
  for ours, theirs in zip(jax.tree.leaves(restored), jax.tree.leaves(tree), strict=True):
    np.testing.assert_array_equal(ours, theirs)
