"""Loggers: each writes what a run logs, continues after a kill, and is checked first."""

import csv
import json
import math

import pytest

from pgax.data import byte_tokenizer
from pgax.errors import UserError
from pgax.runs.json_lines import read_lines
from pgax.runs.loggers import BUILT_IN, Csv, check_loggers, open_loggers
from pgax.training import train
from tests import tiny


class Recorder:
  """A logger that keeps its calls."""

  def __init__(self):
    self.calls = []

  def start(self, config):
    self.calls.append(("start", dict(config)))

  def scalars(self, step, values):
    self.calls.append(("scalars", step, dict(values)))

  def samples(self, step, split, rows):
    self.calls.append(("samples", step, split, len(rows)))

  def flush(self):
    self.calls.append(("flush",))

  def close(self):
    self.calls.append(("close",))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
  workdir, recorder = tmp_path_factory.mktemp("run"), Recorder()
  with pytest.MonkeyPatch.context() as patch:
    patch.setenv("WANDB_MODE", "offline")
    patch.setenv("WANDB_SILENT", "true")
    patch.delenv("MLFLOW_TRACKING_URI", raising=False)
    loggers = (*BUILT_IN, recorder)
    record = {"name": "tiny", "sampling": {"group_size": 4}}
    for steps in (2, 3):  # the second call continues
      config = tiny.run_config(steps=steps)
      train(config, byte_tokenizer(), workdir, record, progress=False, loggers=loggers)
  return workdir, recorder.calls


def test_a_logger_of_ones_own_gets_everything(run):
  calls = run[1]
  assert calls[0] == ("start", {"name": "tiny", "sampling": {"group_size": 4}})
  assert [call[0] for call in calls].count("start") == 2 and calls[-1] == ("close",)
  scalars = [call for call in calls if call[0] == "scalars"]
  supervised = [x for x in scalars if all(n.startswith("supervised/") for n in x[2])]
  assert [x[1] for x in supervised] == [1, 2, 3, 4, 5, 6]
  assert [x[1] for x in scalars if x not in supervised] == [0, 1, 2, 3]
  samples = {call[1:3] for call in calls if call[0] == "samples"}
  assert {(0, "held_out"), (1, "train"), (3, "held_out")} <= samples
  assert all(call[3] > 0 for call in calls if call[0] == "samples")


def test_csv_has_the_rows_of_json_lines(run):
  for name in ("metrics", "supervised"):
    with (run[0] / f"{name}.csv").open(newline="") as file:
      table = list(csv.DictReader(file))
    rows = read_lines(run[0] / f"{name}.jsonl")
    assert [int(row["step"]) for row in table] == [row["step"] for row in rows]
    for ours, theirs in zip(table, rows, strict=True):
      for key, value in theirs.items():
        if value is not None:
          assert float(ours[key]) == pytest.approx(value)
      assert all(not ours[key] for key in ours.keys() - theirs.keys())


def test_mlflow_has_metrics_and_parameters(run):
  from mlflow.tracking import MlflowClient

  client = MlflowClient(tracking_uri=f"sqlite:///{run[0]}/mlflow.db")
  stored = client.get_run((run[0] / "mlflow_run_id").read_text())
  assert stored.data.params == {"name": "tiny", "sampling.group_size": "4"}
  assert stored.info.status == "FINISHED"
  rows = read_lines(run[0] / "metrics.jsonl")
  history = client.get_metric_history(stored.info.run_id, "reward/mean")
  expected = [(x["step"], x["reward/mean"]) for x in rows if "reward/mean" in x]
  assert [(x.step, pytest.approx(x.value)) for x in history] == expected
  assert "supervised/loss" in stored.data.metrics


def test_weights_and_biases_has_the_metrics(run):
  files = list(run[0].glob("wandb/offline-run-*/*.wandb"))
  run_id = (run[0] / "wandb_run_id").read_text()
  assert len(files) == 2 and all(run_id in path.name for path in files)  # one run, resumed
  written = b"".join(path.read_bytes() for path in files)
  for name in ("reward/mean", "supervised/loss", "eval/accuracy", "samples/held_out"):
    assert name.encode() in written


def test_a_killed_run_leaves_no_row_twice(tmp_path):
  logger = open_loggers(("csv",), tmp_path, {"": -1})
  logger.start({})
  for step in range(4):
    logger.scalars(step, {"loss": float(step)} | ({"late": 1.0} if step > 2 else {}))
  with (tmp_path / "metrics.csv").open("a") as file:
    file.write("4")  # the process died here
  logger = open_loggers(("csv",), tmp_path, {"": 1})
  logger.scalars(2, {"loss": 20.0})
  with (tmp_path / "metrics.csv").open(newline="") as file:
    rows = list(csv.DictReader(file))
  assert [(row["step"], row["loss"]) for row in rows] == [
    ("0", "0.0"),
    ("1", "1.0"),
    ("2", "20.0"),
  ]
  lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
  assert [json.loads(line)["step"] for line in lines] == [0, 1, 2]


def test_numbers_that_are_not_finite(tmp_path):
  logger = open_loggers(("csv", "tensorboard"), tmp_path, {})
  logger.start({})
  logger.scalars(1, {"reward/x": math.nan, "supervised/loss": math.inf})
  logger.close()
  assert read_lines(tmp_path / "metrics.jsonl") == [{"step": 1, "reward/x": None}]
  assert read_lines(tmp_path / "supervised.jsonl") == [{"step": 1, "loss": None}]
  assert Csv(tmp_path, {})._read("")[0]["reward/x"] == "nan"


def test_bad_loggers_are_rejected_before_anything_is_written(tmp_path):
  with pytest.raises(UserError, match="no logger 'cvs'; allowed are csv, jsonl, mlflow"):
    train(tiny.run_config(), byte_tokenizer(), tmp_path / "run", loggers=("cvs",))
  assert list(tmp_path.iterdir()) == []
  with pytest.raises(UserError, match="has no method 'scalars' to call; it must be"):
    check_loggers([type("Half", (), {"start": print})()])


@pytest.mark.parametrize("name", ["mlflow", "wandb"])
def test_an_extra_that_is_not_installed(name, monkeypatch):
  monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
  with pytest.raises(UserError, match=rf"needs a package: pip install 'pgax\[{name}\]'"):
    check_loggers([name])


def test_a_logger_that_fails_to_close_keeps_no_other_open(tmp_path):
  class Failing(Recorder):
    def close(self):
      raise OSError("disk")

  last = Recorder()
  logger = open_loggers((Failing(), last), tmp_path, {})
  logger.start({})
  with pytest.raises(OSError, match="disk"):
    logger.close()
  assert last.calls[-1] == ("close",)
  with pytest.raises(UserError, match="has no method 'start' to call"):
    check_loggers([Recorder])


def test_mlflow_begins_a_new_run_in_another_store(tmp_path, monkeypatch):
  from mlflow.tracking import MlflowClient

  for store in ("one", "other"):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/{store}.db")
    logger = open_loggers(("mlflow",), tmp_path, {})
    logger.start({"name": store})
    logger.scalars(1, {"reward/format_ok?": 1.0, "eval/pass@1": 0.5})
    logger.close()
    run_id = (tmp_path / "mlflow_run_id").read_text()
    client = MlflowClient(tracking_uri=f"sqlite:///{tmp_path}/{store}.db")
    metrics = client.get_run(run_id).data.metrics
    assert metrics == {"reward/format_ok_": 1.0, "eval/pass_at_1": 0.5}


BAD_CSV = [b"x,1\n", b"1.5,1\n", b"\xff,\xfe\n", b"9" * 200_000 + b",1\n"]


@pytest.mark.parametrize("bad", BAD_CSV, ids=range(4))
@pytest.mark.parametrize("place", [0, 1])
def test_a_damaged_csv_stops_no_run(tmp_path, bad, place):
  log = Csv(tmp_path, {})
  for step in (1, 2):
    log.scalars(step, {"loss": 1.0})
  path = tmp_path / "metrics.csv"
  lines = path.read_bytes().splitlines(keepends=True)
  path.write_bytes(b"".join([*lines[:place], bad, *lines[place:]]))
  before = path.read_bytes()
  Csv(tmp_path, {"": 2}).scalars(3, {"loss": 2.0})
  assert (tmp_path / "damaged" / "metrics.csv").read_bytes() == before
  steps = [line.partition(b",")[0] for line in path.read_bytes().splitlines()[1:]]
  lost = 0 if place or bad is BAD_CSV[-1] else 2  # if the header is another one
  assert steps == [b"1", b"2", b"3"][lost:]
