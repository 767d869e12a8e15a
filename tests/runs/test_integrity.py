"""Damaged checkpoints: named, kept aside, and the newest good one used."""

import errno
import shutil
import subprocess
import warnings
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from pgax.errors import UserError
from pgax.runs import integrity
from pgax.runs.checkpoint import Checkpoints, read_checkpoints
from pgax.runs.integrity import (
  DIGESTS,
  DamagedCheckpointWarning,
  find_damage,
  newest_good,
)


def _tree(number):
  return {"a": jnp.full((40,), number, jnp.float32), "b": jnp.arange(5)}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
  """A run with checkpoints 10 and 20."""
  folder = tmp_path_factory.mktemp("run")
  checkpoints = Checkpoints(folder)
  for number in (10, 20):
    checkpoints.save(number, _tree(number), {"number": number})
  checkpoints.close()
  return folder


@pytest.fixture
def run(saved, tmp_path):
  return Path(shutil.copytree(saved, tmp_path / "run"))


def _cut(path):
  path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _flip(path):
  content = bytearray(path.read_bytes())
  content[len(content) // 2] ^= 1
  path.write_bytes(content)


DAMAGES = {
  "cut": _cut,
  "flip": _flip,
  "empty": lambda p: p.write_bytes(b""),
  "gone": Path.unlink,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_every_damage_of_every_file_is_found(saved, tmp_path, damage):
  source = saved / "checkpoints" / "20"
  names = sorted(p.relative_to(source) for p in source.rglob("*") if p.is_file())
  assert len(names) > 10
  for name in names:
    copy = Path(shutil.copytree(source, tmp_path / "copy"))
    DAMAGES[damage](copy / name)
    found = find_damage(copy)
    if (damage, name.name) == ("gone", DIGESTS):
      assert not found  # nothing else is wrong with it
    else:
      assert found if name.name == DIGESTS else str(name) in found
    shutil.rmtree(copy)


@pytest.mark.parametrize("damage", DAMAGES)
def test_without_digests_a_checkpoint_must_be_readable(run, damage):
  checkpoint = run / "checkpoints" / "20"
  (checkpoint / DIGESTS).unlink()
  assert not find_damage(checkpoint)
  DAMAGES[damage](checkpoint / "state" / "_METADATA")
  assert "can't be read" in find_damage(checkpoint)


def test_digests_that_a_killed_process_left_out_are_written(run, monkeypatch):
  checkpoint = run / "checkpoints" / "20"
  digests = (checkpoint / DIGESTS).read_text()
  (checkpoint / DIGESTS).rename(checkpoint / f".{DIGESTS}.tmp")
  (checkpoint / f".{DIGESTS}.tmp").write_text(digests[:100])
  assert Checkpoints(run, read_only=True).latest() == 20
  assert not (checkpoint / DIGESTS).exists()

  def full(workdir, number):
    raise OSError(errno.ENOSPC, "No space left on device")

  with monkeypatch.context() as patched:
    patched.setattr(integrity, "write_digests", full)
    with pytest.raises(UserError, match="20 can't be written: No space left on device"):
      Checkpoints(run)
  assert Checkpoints(run).latest() == 20
  assert (checkpoint / DIGESTS).read_text() == digests
  assert not find_damage(checkpoint)


def test_the_newest_good_one_is_used_and_the_bad_one_kept(run):
  _flip(run / "checkpoints" / "20" / "state" / "_METADATA")
  broken = (run / "checkpoints" / "20" / "state" / "_METADATA").read_bytes()
  with pytest.warns(DamagedCheckpointWarning) as caught:
    checkpoints = Checkpoints(run)
  first, second = (str(warning.message) for warning in caught)
  assert "20 is damaged: state/_METADATA differs from its SHA-256" in first
  assert "Checkpoint 10 is the newest good one" in first and "is lost" in first
  assert second == f"the damaged checkpoint 20 was moved to {run / 'damaged' / '20'}"
  state, data = checkpoints.restore(_tree(0))
  np.testing.assert_array_equal(state["a"], _tree(10)["a"])
  assert data == {"number": 10} and checkpoints.latest() == 10
  assert (run / "damaged" / "20" / "state" / "_METADATA").read_bytes() == broken
  # The run does those steps again, and the number is free.
  checkpoints.save(20, _tree(20), {"number": 20})
  checkpoints.close()
  with warnings.catch_warnings(action="error", category=DamagedCheckpointWarning):
    again = Checkpoints(run)
  assert again.latest() == 20 and again.restore_data() == {"number": 20}


def test_a_number_that_was_damaged_twice(run):
  for _ in range(2):
    _cut(run / "checkpoints" / "20" / "data" / "metadata")
    with pytest.warns(DamagedCheckpointWarning):
      checkpoints = Checkpoints(run)
    checkpoints.save(20, _tree(20), {})
    checkpoints.close()
  assert sorted(path.name for path in (run / "damaged").iterdir()) == ["20", "20-2"]


def test_readers_use_the_newest_good_one_and_change_nothing(run):
  _cut(run / "checkpoints" / "20" / "state" / "manifest.ocdbt")
  before = sorted(run.rglob("*"))
  with (
    pytest.warns(DamagedCheckpointWarning, match="Checkpoint 10 is the newest"),
    read_checkpoints(run) as checkpoints,
  ):
    fields = checkpoints.restore_fields({"a": jnp.zeros(40)})
  np.testing.assert_array_equal(fields["a"], _tree(10)["a"])
  assert sorted(run.rglob("*")) == before


def test_without_a_good_one_nothing_starts(run):
  for number in (10, 20):
    _cut(run / "checkpoints" / str(number) / "state" / "_METADATA")
  before = sorted(run.rglob("*"))
  for read_only in (True, False):
    with pytest.raises(UserError, match=r"20 is damaged.*10 is damaged.*no good one left"):
      Checkpoints(run, read_only=read_only)
  assert sorted(run.rglob("*")) == before


def test_an_empty_folder_of_checkpoints_is_no_damage(tmp_path):
  (tmp_path / "checkpoints").mkdir()
  assert newest_good(tmp_path) is None
  (tmp_path / "checkpoints" / "7").mkdir()  # all of its files are gone
  with pytest.raises(UserError, match="no good one left"):
    Checkpoints(tmp_path)


@pytest.mark.skipif(not shutil.which("sha256sum"), reason="sha256sum is not installed")
def test_sha256sum_reads_the_digests(run):
  command = ["sha256sum", "--check", "--strict", "--quiet", DIGESTS]
  assert not subprocess.run(command, cwd=run / "checkpoints" / "20").returncode


def test_a_run_whose_checkpoints_are_gone_does_not_start_again(run):
  shutil.rmtree(run / "checkpoints" / "20")
  with pytest.warns(DamagedCheckpointWarning, match=r"20 is gone. Checkpoint 10 is"):
    assert newest_good(run) == 10
  shutil.rmtree(run / "checkpoints" / "10")
  for _ in range(2):
    with pytest.raises(UserError, match="the run had checkpoint 20, and .* holds none now"):
      Checkpoints(run)
    shutil.rmtree(run / "checkpoints", ignore_errors=True)
    assert not (run / "checkpoints").exists()


def test_digests_that_were_cut_off_are_found(run):
  checkpoint = run / "checkpoints" / "20"
  lines = (checkpoint / DIGESTS).read_text().splitlines(keepends=True)
  (checkpoint / DIGESTS).write_text("".join(lines[:4]))
  assert find_damage(checkpoint).startswith(f"{DIGESTS} lacks ")


def test_other_names_are_no_checkpoints(run):
  shutil.copytree(run / "checkpoints" / "10", run / "checkpoints" / "030")
  (run / "checkpoints" / "40").touch()
  with warnings.catch_warnings(action="error", category=DamagedCheckpointWarning):
    checkpoints = Checkpoints(run)
  assert checkpoints.latest() == 20


def test_a_damaged_one_that_cannot_be_moved(run):
  _flip(run / "checkpoints" / "20" / "state" / "_METADATA")
  (run / "damaged").touch()
  with (
    pytest.warns(DamagedCheckpointWarning),
    pytest.raises(UserError, match=r"can't be moved to .*damaged/20: File exists. Move"),
  ):
    Checkpoints(run)
