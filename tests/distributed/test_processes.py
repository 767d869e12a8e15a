"""Two processes do what one does: the same metrics, stops, deaths and checkpoints."""

import math
import shutil
import signal
import time

import numpy as np
import pytest

from pgax.runs.json_lines import read_lines
from tests.processes import finish, start
from tests.waiting import eventually

pytestmark = pytest.mark.slow
JOBS = ("grpo", "ppo", "dapo", "lora", "workers", "learned", "lag", "steps")
PROGRAM = "tests.distributed.jobs"


def run(count, devices, *arguments):
  """Runs jobs to their end."""
  ended = finish(start(count, devices, PROGRAM, *arguments))
  assert [status for status, *_ in ended] == [0] * count, [x[2][-2000:] for x in ended]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
  """All jobs in one process with four devices."""
  folder = tmp_path_factory.mktemp("alone")
  run(1, 4, folder, *JOBS)
  return folder


@pytest.fixture(scope="module")
def both(tmp_path_factory):
  """All jobs in two processes with two devices each."""
  folder = tmp_path_factory.mktemp("both")
  run(2, 2, folder, *JOBS)
  return folder


def rows(folder, name, file="metrics.jsonl"):
  """Rows of a run, without times."""
  return [
    {key: value for key, value in row.items() if not key.startswith("time/")}
    for row in read_lines(folder / name / file)
  ]


def assert_same(ours, theirs, tolerance=1e-5):
  assert [row["step"] for row in ours] == [row["step"] for row in theirs]
  for row, other in zip(ours, theirs, strict=True):
    assert row.keys() == other.keys()
    for key, value in row.items():
      if isinstance(value, float):
        scale = max(abs(value), 0.1)
        assert math.isclose(other[key], value, abs_tol=tolerance * scale), key
      else:
        assert other[key] == value, key


@pytest.mark.parametrize("job", JOBS)
def test_metrics_are_those_of_one_process(alone, both, job):
  assert_same(rows(both, job), rows(alone, job))
  ours, theirs = (rows(folder, job, "samples.jsonl") for folder in (both, alone))
  for sample, other in zip(ours, theirs, strict=True):
    for name in ("step", "split", "prompt", "completion", "tokens", "reward", "right"):
      assert sample[name] == other[name]
    for name in ("logp", "advantages"):
      np.testing.assert_allclose(sample[name] or (), other[name] or (), atol=2e-4)
  if job in ("grpo", "lora"):
    files = [rows(folder, job, "supervised.jsonl") for folder in (both, alone)]
    assert files[0] and files[0] == [pytest.approx(row, rel=1e-5) for row in files[1]]


def test_the_jobs_do_what_they_are_for(alone):
  trained = {job: [r for r in rows(alone, job) if "loss" in r] for job in JOBS}
  for job, steps in trained.items():
    assert any(row["grad_norm"] > 1e-3 for row in steps), job
  assert any(row["sampling/batches"] > 1 for row in trained["dapo"])
  assert any(row["reward/unscorable"] > 0 for row in trained["workers"])
  assert any(0 < row["length/truncated"] < 1 for row in trained["learned"])
  assert "eval/majority@4" in rows(alone, "workers")[0]


def test_a_checkpoint_moves_between_one_process_and_two(alone, tmp_path):
  run(1, 4, tmp_path, "grpo:2")
  run(2, 2, tmp_path, "grpo:4")
  run(1, 4, tmp_path, "grpo")
  assert_same(rows(tmp_path, "grpo"), rows(alone, "grpo"))


@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_process_ends_the_run_which_resumes(both, tmp_path, victim):
  kill = {"KILL_PROCESS": str(victim), "KILL_CALL": "60"}
  processes = start(2, 2, PROGRAM, tmp_path, "grpo", **kill)
  processes[victim].communicate()
  assert processes[victim].returncode == -signal.SIGKILL
  died = time.monotonic()
  (_, _, said), *_ = finish([processes[1 - victim]])
  assert time.monotonic() - died < 30
  # Its own words, or those of JAX, whichever notices first.
  assert "another process of this run has ended" in said or "another task died" in said
  assert len(rows(tmp_path, "grpo")) < len(rows(both, "grpo"))
  run(2, 2, tmp_path, "grpo")
  # The same programs on the same devices: the same bits.
  assert_same(rows(tmp_path, "grpo"), rows(both, "grpo"), tolerance=0)


def test_a_signal_to_one_process_stops_both_at_one_step(both, tmp_path):
  processes = start(2, 2, PROGRAM, tmp_path, "grpo")
  eventually(lambda: (tmp_path / "grpo").exists() and len(rows(tmp_path, "grpo")) > 2, 600)
  processes[1].send_signal(signal.SIGTERM)
  ended = finish(processes)
  assert [status for status, *_ in ended] == [0, 0]
  done = len(rows(tmp_path, "grpo"))
  assert "step=" in ended[0][1] and "False" in ended[0][1] and done < 6
  run(2, 2, tmp_path, "grpo")
  assert_same(rows(tmp_path, "grpo"), rows(both, "grpo"), tolerance=0)


def test_a_damaged_checkpoint_is_set_aside_once(both, tmp_path):
  shutil.copytree(both / "grpo", tmp_path / "grpo")
  latest = max((tmp_path / "grpo" / "checkpoints").iterdir(), key=lambda x: int(x.name))
  (latest / "data" / "metadata").write_text("{")
  ended = finish(start(2, 2, PROGRAM, tmp_path, "grpo"))
  assert [status for status, *_ in ended] == [0, 0], [x[2][-2000:] for x in ended]
  assert (tmp_path / "grpo" / "damaged" / latest.name).is_dir()
  assert "was moved to" in ended[0][2] and "was moved to" not in ended[1][2]
  assert_same(rows(tmp_path, "grpo"), rows(both, "grpo"), tolerance=0)
