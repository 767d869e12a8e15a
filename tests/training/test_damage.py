"""Runs whose folder is damaged or in use: nothing is lost, nothing is written twice."""

import jax
import numpy as np
import pytest

from pgax.data import byte_tokenizer
from pgax.errors import UserError
from pgax.runs.integrity import DamagedCheckpointWarning
from pgax.runs.json_lines import BadRowWarning
from pgax.runs.lock import LOCK, FolderLock
from pgax.runs.loggers import read_metrics
from pgax.training import train
from tests import tiny


def run(folder, steps):
  config = tiny.run_config(steps=steps, supervised=tiny.SupervisedConfig(steps=0))
  return train(config, byte_tokenizer(), folder, {"a": 1}, progress=False)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
  return run(tmp_path_factory.mktemp("whole"), 4)


def _cut(path):
  path.write_bytes(path.read_bytes()[:-3])


def test_a_damaged_checkpoint_costs_its_steps_only(whole, tmp_path):
  run(tmp_path, 3)
  _cut(tmp_path / "checkpoints" / "3" / "state" / "_METADATA")
  with (tmp_path / "metrics.jsonl").open("a") as file:
    file.write("not a row\n{}\n")
  with pytest.warns(DamagedCheckpointWarning) as caught, pytest.warns(BadRowWarning):
    again = run(tmp_path, 4)
  assert any("Checkpoint 2 is the newest good one" in str(x.message) for x in caught)
  for ours, theirs in zip(
    *(jax.tree.leaves(x.state.params) for x in (again, whole)), strict=True
  ):
    np.testing.assert_array_equal(ours, theirs)
  assert [row["step"] for row in read_metrics(tmp_path)] == [0, 1, 2, 3, 4]
  assert (tmp_path / "damaged" / "3").is_dir()


def test_without_a_good_checkpoint_nothing_starts(tmp_path):
  run(tmp_path, 2)
  for checkpoint in (tmp_path / "checkpoints").iterdir():
    _cut(checkpoint / "data" / "metadata")
  before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
  with pytest.raises(UserError, match=r"no good one left, and nothing was changed"):
    run(tmp_path, 4)
  after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
  assert after == before


def test_a_folder_in_use_is_refused(tmp_path):
  folder = tmp_path / "run"
  run(folder, 1)
  rows = read_metrics(folder)
  with FolderLock(folder), pytest.raises(UserError, match="in use by process"):
    run(folder, 2)
  assert read_metrics(folder) == rows and not (folder / LOCK).exists()
  assert run(folder, 2).finished
  assert [row["step"] for row in read_metrics(folder)] == [0, 1, 2]
