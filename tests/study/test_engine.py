"""Programs of many runs: chunks, what is kept of them, and devices."""

import dataclasses

import numpy as np
import pytest

from pgax.errors import UserError
from pgax.runs.lock import FolderLock
from pgax.study import Program, run_program
from pgax.study.files import save_chunk
from tests.devices import run_on_devices
from tests.study import descent

SETTINGS = [{"rate": 0.1, "target": 1.0}, {"rate": 0.2, "target": 1.0}]
SEEDS = [3, 0, 7]


def alone(setting, seed):
  """A run of `descent`, step by step."""
  x = np.float32(seed)
  values, errors = [], [abs(x - 1)]
  for step in range(descent.STEPS):
    x = x + np.float32(setting["rate"]) * (np.float32(1) - x) + np.float32(seed + step)
    values.append(x)
    errors += [abs(x - 1)] * ((step + 1) % descent.EVERY == 0)
  return values, errors


@pytest.mark.parametrize("at_once", [1, 4, 6])
def test_every_run_is_what_it_is_alone(at_once):
  metrics = run_program(descent.program(), SETTINGS, SEEDS, at_once=at_once, progress=False)
  assert metrics["x"].shape == (2, 3, descent.STEPS)
  assert metrics["eval/error"].shape == (2, 3, 1 + descent.STEPS // descent.EVERY)
  assert metrics["time/run"].shape == (2, 3)
  for i, setting in enumerate(SETTINGS):
    for j, seed in enumerate(SEEDS):
      values, errors = alone(setting, seed)
      np.testing.assert_allclose(metrics["x"][i, j], values, rtol=1e-6)
      np.testing.assert_allclose(metrics["eval/error"][i, j], errors, rtol=1e-6)


def test_finished_chunks_are_not_computed_again(tmp_path):
  started = []

  def counted(*arguments):
    started.append(arguments[1])
    if len(started) == 2:
      raise KeyboardInterrupt
    return start(*arguments)

  program = descent.program()
  start = program.start
  object.__setattr__(program, "start", counted)
  options = {"at_once": 2, "folder": tmp_path, "progress": False}
  with pytest.raises(KeyboardInterrupt):
    run_program(program, SETTINGS, SEEDS, **options)
  interrupted = run_program(program, SETTINGS, SEEDS, **options)
  assert started == [[3, 3], [0, 0], [0, 0], [7, 7]]
  whole = run_program(descent.program(), SETTINGS, SEEDS, at_once=2, progress=False)
  for name in ("x", "eval/error"):
    np.testing.assert_array_equal(interrupted[name], whole[name])
  assert not list(tmp_path.glob("*.tmp"))
  with pytest.raises(UserError, match="holds another study: settings differ"):
    run_program(program, SETTINGS[:1], SEEDS, **options)
  shorter = dataclasses.replace(descent.program(), steps=descent.STEPS - descent.EVERY)
  with pytest.raises(UserError, match="holds another study: steps differ"):
    run_program(shorter, SETTINGS, SEEDS, **options)


@pytest.mark.parametrize("name", ["runs_0_to_1.npz", "study.json"])
def test_a_damaged_file_is_named(name, tmp_path):
  options = {"at_once": 2, "folder": tmp_path, "progress": False}
  run_program(descent.program(), SETTINGS, SEEDS, **options)
  (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:-20])
  with pytest.raises(UserError, match=f"{name} can't be read: .* Remove it"):
    run_program(descent.program(), SETTINGS, SEEDS, **options)


@pytest.mark.parametrize("text", ["[]", "null", "3"])
def test_a_record_that_is_no_record_is_named(text, tmp_path):
  (tmp_path / "study.json").write_text(text)
  options = {"at_once": 2, "folder": tmp_path, "progress": False}
  with pytest.raises(UserError, match="study.json can't be read: .* Remove it"):
    run_program(descent.program(), SETTINGS, SEEDS, **options)


def test_a_folder_that_cannot_be_used(tmp_path):
  (tmp_path / "file").touch()
  with pytest.raises(UserError, match="file/study can't be written: Not a directory"):
    run_program(descent.program(), SETTINGS, SEEDS, folder=tmp_path / "file" / "study")
  with (
    FolderLock(tmp_path),
    pytest.raises(UserError, match="is in use by process"),
  ):
    run_program(descent.program(), SETTINGS, SEEDS, folder=tmp_path)
  with pytest.raises(UserError, match=r"chunk\.npz can't be written: No space left"):
    save_chunk(full_disk(tmp_path) / "chunk", {"x": np.zeros(9)})


def full_disk(folder):
  """A folder whose next file is on a full device."""
  (folder / "chunk.tmp").symlink_to("/dev/full")
  return folder


def test_runs_are_sharded_over_devices():
  printed = run_on_devices(4, "tests.study.descent")
  expected = run_program(descent.program(), SETTINGS, SEEDS, progress=False)["x"]
  devices, *values = printed.split()
  assert devices == "4"
  np.testing.assert_allclose(np.array(values, float), expected.ravel(), rtol=1e-6)


def test_evaluations_must_divide_the_steps():
  with pytest.raises(ValueError, match="steps is 5 and the evaluation is every 2 steps"):
    Program(5, descent.start, descent.step, evaluate=descent.evaluate, eval_every=2)
