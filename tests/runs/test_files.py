"""The files of a run: rows removed after the checkpoint, folders recognized."""

import dataclasses
import json
from pathlib import Path

import pytest

from pgax.errors import UserError
from pgax.rollout.samples import Sample
from pgax.runs.json_lines import BadRowWarning, read_lines
from pgax.runs.loggers import open_loggers, read_metrics, read_samples
from pgax.runs.workdir import open_workdir, read_config

CONFIG = {"name": "x", "steps": 5, "model": {"num_layers": 2}}
SAMPLE = dataclasses.asdict(Sample("1+1=", "é", "2", None, False, True, ["é"], [-0.5]))


def opened(folder, last=-1):
  """The default loggers of a run that resumes after a step."""
  log = open_loggers(("jsonl", "tensorboard"), folder, {"": last})
  log.start({})
  return log


def test_rows_past_the_checkpoint_are_dropped(tmp_path):
  log = opened(tmp_path)
  for step in range(5):
    log.scalars(step, {"loss": float(step)})
    log.samples(step, "train", [SAMPLE])
  log.close()
  with (tmp_path / "metrics.jsonl").open("a") as file:
    file.write('{"step": 5, "lo')  # a process died here
  log = opened(tmp_path, last=2)
  log.scalars(3, {"loss": 30.0})
  log.close()
  rows = read_lines(tmp_path / "metrics.jsonl")
  assert [(row["step"], row["loss"]) for row in rows] == [
    (0, 0),
    (1, 1),
    (2, 2),
    (3, 30),
  ]
  assert [row["step"] for row in read_lines(tmp_path / "samples.jsonl")] == [0, 1, 2]


def test_rows_are_json_also_when_not_finite(tmp_path):
  log = opened(tmp_path)
  log.scalars(1, {"reward/x": float("nan"), "tokens/generated": 3})
  log.samples(1, "train", [SAMPLE])
  log.close()
  assert read_lines(tmp_path / "metrics.jsonl") == [
    {"step": 1, "reward/x": None, "tokens/generated": 3}
  ]
  (row,) = read_lines(tmp_path / "samples.jsonl")
  assert row["completion"] == "é" and row["reward"] is None and row["split"] == "train"
  (events,) = (tmp_path / "tensorboard").glob("events*")
  assert b"reward/x" in events.read_bytes() and b"tokens/generated" in events.read_bytes()


def test_a_folder_is_created_and_recognized(tmp_path):
  folder = tmp_path / "new" / "run"
  open_workdir(folder, CONFIG).release()
  assert read_config(folder) == CONFIG
  (folder / "metrics.jsonl").write_text("")
  open_workdir(folder, CONFIG | {"steps": 9}, free={"steps"}).release()
  assert read_config(folder)["steps"] == 9


@pytest.mark.parametrize(
  ("config", "message"),
  [
    (CONFIG | {"name": "y"}, "name is 'y', but the run in .* has 'x'"),
    (CONFIG | {"model": {"num_layers": 3}}, "model.num_layers is 3, but .* has 2"),
    (CONFIG | {"extra": 1}, "extra is 1, but .* has absent"),
    (
      {"name": "x", "steps": 5, "model": {}},
      "model.num_layers is absent, but .* has 2",
    ),
  ],
)
def test_another_configuration_is_rejected(tmp_path, config, message):
  open_workdir(tmp_path, CONFIG).release()
  with pytest.raises(UserError, match=message):
    open_workdir(tmp_path, config).release()
  assert read_config(tmp_path) == CONFIG


def test_what_a_killed_start_leaves_is_not_foreign(tmp_path):
  (tmp_path / ".writable").write_text("")
  (tmp_path / ".config.json").write_text("{")
  open_workdir(tmp_path, CONFIG).release()
  assert read_config(tmp_path) == CONFIG


def test_any_text_stays_in_its_row(tmp_path):
  log = opened(tmp_path)
  for text in ("a\u2028b", "a\x85b", "a\x0bb\nc", "a\x1cb"):
    log.samples(1, "train", [SAMPLE | {"completion": text}])
  log.close()
  opened(tmp_path, last=1).close()
  texts = [row["completion"] for row in read_lines(tmp_path / "samples.jsonl")]
  assert texts == ["a\u2028b", "a\x85b", "a\x0bb\nc", "a\x1cb"]


def test_a_row_cut_off_inside_a_character(tmp_path):
  opened(tmp_path).samples(1, "train", [SAMPLE])
  with (tmp_path / "samples.jsonl").open("ab") as file:
    file.write('{"step": 2, "prompt": "\ufffd'.encode()[:-1])
  opened(tmp_path, last=5).close()
  assert [row["step"] for row in read_lines(tmp_path / "samples.jsonl")] == [1]


def test_foreign_folders_are_rejected_and_left_alone(tmp_path):
  (tmp_path / "thesis.tex").write_text("precious")
  with pytest.raises(UserError, match=r"holds thesis.tex but no config.json"):
    open_workdir(tmp_path, CONFIG).release()
  assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
  (tmp_path / "config.json").write_text("{")
  with pytest.raises(UserError, match="is not the configuration of a run"):
    open_workdir(tmp_path, CONFIG).release()


@pytest.mark.parametrize("text", ["[1]", "null", '"x"', "5"])
def test_a_configuration_is_an_object(tmp_path, text):
  (tmp_path / "config.json").write_text(text)
  for call in (read_config, lambda folder: open_workdir(folder, CONFIG)):
    with pytest.raises(UserError, match="is not the configuration of a run: it holds a"):
      call(tmp_path)


def test_a_group_of_settings_may_be_free(tmp_path):
  free = {"evaluation.extract_answer"}
  answers = [{"callable": "pgax:a"}, {"callable": "pgax:b"}, None]
  for answer in answers:
    open_workdir(tmp_path, {"evaluation": {"extract_answer": answer}}, free).release()
  with pytest.raises(UserError, match="evaluation.extract_answers is 1"):
    open_workdir(tmp_path, {"evaluation": {"extract_answers": 1}}, free).release()


def test_a_file_in_the_way(tmp_path):
  path = tmp_path / "file"
  path.write_text("")
  for folder in (path, path / "below"):
    with pytest.raises(UserError, match="can't be written: (File exists|Not a directory)"):
      open_workdir(folder, CONFIG).release()


def test_unwritable(monkeypatch, tmp_path):
  # Root may write anywhere, so the refusal is the file system's own, forwarded.
  def refuse(path, *args, **kwargs):
    raise PermissionError(13, "Permission denied", str(path))

  monkeypatch.setattr(Path, "write_text", refuse)
  with pytest.raises(UserError, match="can't be written: Permission denied"):
    open_workdir(tmp_path / "locked", CONFIG).release()


def test_config_is_written_whole(tmp_path):
  open_workdir(tmp_path, CONFIG).release()
  assert json.loads((tmp_path / "config.json").read_text()) == CONFIG
  assert [path.name for path in tmp_path.iterdir()] == ["config.json"]


BAD_METRICS = [
  *("{}", "[]", "null", "{", "\0", '{"step": "2"}', '{"step": 2, "loss": "x"}'),
  *(f'{{"step": 2, "loss": {x}}}' for x in ("NaN", "-Infinity", "1e999", "1" + "0" * 400)),
  '{"step": 2, "\\ud800": 1}',
]


@pytest.mark.parametrize("bad", BAD_METRICS)
def test_a_bad_line_costs_no_other_row(tmp_path, bad):
  log = opened(tmp_path)
  log.scalars(1, {"loss": 1.0})
  with (tmp_path / "metrics.jsonl").open("a") as file:
    file.write(f"{bad}\n")
  log.scalars(2, {"loss": 2.0})
  with pytest.warns(BadRowWarning, match=r"line 2 of .*metrics.jsonl is no row"):
    assert [row["step"] for row in read_metrics(tmp_path)] == [1, 2]
  with pytest.warns(BadRowWarning):
    opened(tmp_path, last=2).close()
  assert [row["step"] for row in read_metrics(tmp_path)] == [1, 2]
  assert (tmp_path / "damaged" / "metrics.jsonl").read_text() == f"{bad}\n"


@pytest.mark.parametrize(
  "change",
  [
    {"tokens": None},
    {"logp": [0.0, 1.0]},
    {"advantages": ["x"]},
    {"reward": "1"},
    {"right": 1},
    {"prompt": 3},
    {"step": True},
  ],
)
def test_a_bad_sample_costs_no_other(tmp_path, change):
  log = opened(tmp_path)
  log.samples(1, "train", [SAMPLE, SAMPLE | change, SAMPLE])
  with pytest.warns(BadRowWarning, match="line 2"):
    assert len(read_samples(tmp_path)) == 2
  with pytest.warns(BadRowWarning):
    opened(tmp_path, last=1).close()
  assert len(read_samples(tmp_path)) == 2
