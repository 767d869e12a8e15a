"""Fields that a run never changes: saved once, found again, and never mixed up."""

import shutil
from pathlib import Path

import flax.struct
import jax.numpy as jnp
import numpy as np
import pytest

from pgax.errors import UserError
from pgax.runs.checkpoint import Checkpoints, read_checkpoints
from pgax.types import PyTree

DATA = {"note": "x"}


@flax.struct.dataclass
class State:
  """A state with a part that does not change."""

  base: PyTree
  params: PyTree


def _state(number, base=1.0):
  shared = {"w": jnp.full((3, 40), base), "v": jnp.arange(5)}
  return State(shared, {"a": jnp.full((4,), number, jnp.float32)})


def _save(folder, *states, frozen=("base",)):
  checkpoints = Checkpoints(folder)
  for number, state in enumerate(states):
    checkpoints.save(number, state, DATA, frozen)
  checkpoints.close()


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
  folder = tmp_path_factory.mktemp("run")
  _save(folder, _state(10), _state(20))
  return folder


@pytest.fixture
def run(saved, tmp_path):
  return Path(shutil.copytree(saved, tmp_path / "run"))


def _read(folder):
  with read_checkpoints(folder) as checkpoints:
    return checkpoints.restore_fields({"base": _state(0).base, "params": _state(0).params})


def _is(fields, number, base=1.0):
  np.testing.assert_array_equal(fields["params"]["a"], np.full(4, number))
  np.testing.assert_array_equal(fields["base"]["w"], np.full((3, 40), base))
  np.testing.assert_array_equal(fields["base"]["v"], np.arange(5))


def test_a_state_comes_back_whole(saved):
  state, data = Checkpoints(saved, read_only=True).restore(_state(0))
  assert data == DATA
  _is(vars(state), 20)
  _is(_read(saved), 20)


def test_checkpoints_leave_them_out(saved):
  named = [
    name
    for path in (saved / "checkpoints").rglob("_METADATA")
    for name in ("base", "params")
    if f"('{name}', " in path.read_text()
  ]
  assert named.count("params") == 2 and "base" not in named
  frozen = (saved / "frozen" / "_METADATA").read_text()
  assert "('base', " in frozen and "('params', " not in frozen


def test_a_run_that_continues_keeps_its_own(run):
  before = (run / "frozen" / "_METADATA").stat().st_ino
  checkpoints = Checkpoints(run)
  state, data = checkpoints.restore(_state(0))
  checkpoints.save(5, state, data, ("base",))
  assert (run / "frozen" / "_METADATA").stat().st_ino == before
  _is(_read(run), 20)


def test_a_start_without_a_checkpoint_replaces_what_a_killed_one_left(run):
  shutil.rmtree(run / "checkpoints")
  (run / ".latest_checkpoint").unlink()
  _save(run, _state(30, base=2.0))
  _is(_read(run), 30, base=2.0)


def test_checkpoints_that_hold_everything_are_read_and_continued(tmp_path):
  _save(tmp_path, _state(10), frozen=())
  assert not (tmp_path / "frozen").exists()
  _is(_read(tmp_path), 10)
  checkpoints = Checkpoints(tmp_path)
  state, data = checkpoints.restore(_state(0))
  checkpoints.save(1, state, data, ("base",))
  _is(_read(tmp_path), 10)
  assert (tmp_path / "frozen").is_dir()


def _cut(path):
  path.write_bytes(path.read_bytes()[:-3])


@pytest.mark.parametrize(
  ("harm", "message"),
  [
    (lambda run: shutil.rmtree(run / "frozen"), r"can't be read: .*No such file.*frozen/"),
    (lambda run: _cut(run / "frozen" / "_METADATA"), "frozen/_METADATA differs"),
  ],
)
def test_what_is_missing_or_damaged_is_named(run, harm, message):
  harm(run)
  for read in (_read, lambda run: Checkpoints(run).restore(_state(0))):
    with pytest.raises(UserError, match=rf"1 is damaged: .*{message}.*no good one left"):
      read(run)


def test_checkpoints_may_be_on_another_disk(run, tmp_path):
  (run / "checkpoints").rename(tmp_path / "large")
  (run / "checkpoints").symlink_to(tmp_path / "large")
  _is(_read(run), 20)


def test_those_of_another_run_are_rejected(run, tmp_path):
  _save(tmp_path / "other", _state(20, base=3.0))
  shutil.rmtree(run / "frozen")
  shutil.copytree(tmp_path / "other" / "frozen", run / "frozen")
  with pytest.raises(UserError, match=r"1 is damaged: .*frozen/.* differs from"):
    _read(run)


def test_other_shapes_are_named(saved):
  wider = _state(0).replace(base={"w": jnp.zeros((3, 41)), "v": jnp.arange(5)})
  with pytest.raises(UserError, match=r"base\.w is \(3, 40\) in the checkpoint and"):
    Checkpoints(saved, read_only=True).restore(wider)
