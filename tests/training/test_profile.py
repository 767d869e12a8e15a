"""Traces of steps, and the parts of their times."""

import time

import pytest

from pgax.data import byte_tokenizer
from pgax.errors import UserError
from pgax.runs.json_lines import read_lines
from pgax.training import train
from pgax.training.profile import Profiler, StepTimes, parse_steps
from tests import tiny

PARTS = ("rollout", "reward", "train", "evaluation", "checkpoint", "waiting")


def test_a_run_traces_the_steps_that_were_asked_for(tmp_path):
  config = tiny.run_config(steps=3)
  train(config, byte_tokenizer(), tmp_path, progress=False, profile_steps=(2, 3))
  traces = [x for x in (tmp_path / "profile").rglob("*") if x.is_file()]
  assert any(x.name.endswith(".xplane.pb") for x in traces)
  assert all(x.stat().st_size for x in traces)
  rows = read_lines(tmp_path / "metrics.jsonl")[1:]
  for row in rows:
    parts = sum(row.get(f"time/{name}", 0.0) for name in PARTS)
    assert 0 < parts <= row["time/step"]
  # What is left is the host's: metrics, completions as text, files.
  assert (
    max(row["time/step"] for row in rows[1:]) < rows[0]["time/step"]
  )  # compiled by then


def test_steps_that_never_come_are_rejected(tmp_path):
  config = tiny.run_config(steps=3)
  with pytest.raises(UserError, match="begins with step 4, and the run has 3 steps"):
    train(config, byte_tokenizer(), tmp_path / "run", profile_steps=(4, 5))
  assert not (tmp_path / "run").exists()


def test_parts_are_of_the_step_that_they_hold_up():
  times = StepTimes()
  with times.part("evaluation"):
    time.sleep(0.01)
  first = times.lap()
  with times.part("checkpoint"):
    pass
  second = times.lap()
  assert first["time/step"] >= first["time/evaluation"] >= 0.01
  assert set(second) == {"time/step", "time/checkpoint"}


def test_a_trace_ends_with_the_run(tmp_path, monkeypatch):
  calls = []
  for name in ("start_trace", "stop_trace"):
    monkeypatch.setattr(f"jax.profiler.{name}", lambda *_, name=name: calls.append(name))
  profiler = Profiler((2, 9), tmp_path)
  for step in (1, 2, 3):
    profiler.before(step)
    profiler.after(step)
  profiler.close()
  profiler.close()
  assert calls == ["start_trace", "stop_trace"]
  resumed = Profiler((2, 3), tmp_path)  # from a checkpoint after these steps
  resumed.before(7)
  resumed.after(7)
  assert len(calls) == 2


def test_steps_are_read():
  assert parse_steps("") is None and parse_steps("3:5") == (3, 5)
  for text in ("3", "5:3", "0:2", "a:b", "3:"):
    with pytest.raises(UserError, match=f"--profile_steps is '{text}'; it must be a first"):
      parse_steps(text)
