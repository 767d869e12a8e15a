"""Two processes together: values, errors, rows, and what each of them must not do alone."""

import json
import socket

import numpy as np
import pytest

from pgax.distributed.cluster import initialize
from pgax.errors import UserError
from tests.processes import finish, start

HOST = socket.gethostname()


@pytest.fixture(scope="module")
def both(tmp_path_factory):
  folder = tmp_path_factory.mktemp("both")
  (folder / "taken").mkdir()
  (folder / "taken" / "thesis.txt").write_text("not a run")
  ended = finish(start(2, 2, "tests.distributed.together", folder))
  assert [status for status, *_ in ended] == [0, 0], (
    ended[0][2][-1000:] + ended[1][2][-1000:]
  )
  return [json.loads(output.splitlines()[-1]) for _, output, _ in ended]


def test_values_reach_every_process(both):
  for result in both:
    assert result["gathered"] == ["", "x"] and result["long"] == [0, 5000]
    assert result["broadcast"] == "of 0" and result["on_writer"] == 0
    assert result["any"] == [False, True]


def test_a_signal_to_one_stops_all_for_good(both):
  assert all(result["stops"] == [False, True] for result in both)


def test_an_error_of_one_is_raised_in_all(both):
  assert both[0]["writer_fails"] == both[1]["writer_fails"] == "UserError: the disk is full"
  assert both[0]["last_fails"] == f"UserError: process 1 on {HOST}: no such file"
  assert both[1]["last_fails"] == "UserError: no such file"


@pytest.mark.parametrize("mesh", ["rows", "rows_of_both"])
def test_rows_travel_without_other_processes_values(both, mesh):
  values = np.arange(24.0).reshape(8, 3)
  owned = sorted(both[0][mesh]["own"] + both[1][mesh]["own"])
  assert owned == list(range(8)) and len(both[0][mesh]["own"]) == 4
  held = [both[process][mesh]["held"] for process in (0, 1)]
  everything = list(range(8))
  assert held == ([everything] * 2 if mesh == "rows_of_both" else [owned[:4], owned[4:]])
  for result in both:
    found = result[mesh]
    np.testing.assert_array_equal(found["fetched"], values[found["own"]])
    np.testing.assert_array_equal(found["whole"], values)
    np.testing.assert_array_equal(found["first"], values[:3])
    two = np.concatenate([values, values + 100])
    np.testing.assert_array_equal(found["taken"], two[[9, 1, 14, 3, 0, 8, 2, 15], 0])
    assert found["taken_like_batch"]


def test_processes_are_of_one_run(both):
  for result in both:
    assert result["same"] == "no error" and result["left"] is False
    assert (
      f"processes of this run differ: config.a.b is 0 in process 0 on {HOST} and 1 in "
      f"process 1 on {HOST}. Start all of them with" in result["other_config"]
    )
    assert "is not one shared folder: process 1 on" in result["other_folder"]


def test_the_folder_is_locked_once_for_all(both):
  assert all(result["lock"] == "no error" for result in both)
  for result in both:
    assert "taken holds thesis.txt but no config.json" in result["locked_out"]


@pytest.mark.parametrize(
  ("arguments", "expected"),
  [
    (("host:1", 2, None), "--process_id is None; give all of them or none"),
    (("host", 2, 0), "--coordinator is 'host'; it must be HOST:PORT"),
    (("host:1", 2, 2), "--process_id is 2 and --num_processes is 2"),
  ],
)
def test_bad_flags(arguments, expected):
  with pytest.raises(UserError, match=expected):
    initialize(*arguments)


def test_a_process_alone_waits_for_nobody(monkeypatch):
  initialize(None, None, None)
  initialize("host:1", 1, 0)
  # A shell in an allocation of four tasks, and a pod that belongs to no indexed job.
  names = ("JOB_ID", "STEP_NODELIST", "NTASKS", "PROCID", "LOCALID", "STEP_NUM_TASKS")
  for name, value in zip(names, ("7", "node1", "4", "0", "0", "1"), strict=True):
    monkeypatch.setenv(f"SLURM_{name}", value)
  monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
  initialize(None, None, None)
