"""GSM8K as TFDS has it: built from the local files, read without TensorFlow."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.prepare_gsm8k import prepare
from pgax.data import Fields, from_rows, tfds
from pgax.tasks import GSM8KFields, gsm8k
from pgax.training import UserError
from pgax.types import Example

ROOT = Path(__file__).parents[2]
EXCERPT = ROOT / "tests" / "data" / "gsm8k"
WHOLE = ROOT.parent / "shared" / "data" / "gsm8k"


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
  """Made by the program as a user starts it, where nothing can be downloaded."""
  folder = tmp_path_factory.mktemp("tfds")
  proxy = dict.fromkeys(("http_proxy", "https_proxy"), "http://127.0.0.1:9")
  command = [
    "-m",
    "experiments.prepare_gsm8k",
    f"--source={EXCERPT}",
    f"--data_dir={folder}",
  ]
  done = subprocess.run(
    [sys.executable, *command],
    cwd=ROOT,
    env=os.environ | proxy,
    capture_output=True,
    text=True,
    check=True,
  )
  assert "train: 25 problems\ntest: 25 problems\n" in done.stdout
  assert sorted(x.name for x in folder.iterdir()) == ["gsm8k"]
  return folder


def whole(task):
  return [
    [examples[i] for i in range(len(examples))] for examples in (task.train, task.held_out)
  ]


def splits(data_dir):
  return [tfds("gsm8k", split, str(data_dir)) for split in ("train", "test")]


def test_the_same_problems_in_the_same_order(data_dir):
  files = gsm8k(str(EXCERPT / "train.jsonl"), str(EXCERPT / "test.jsonl"))
  task = from_rows(*splits(data_dir), GSM8KFields())
  assert whole(task) == whole(files)


@pytest.mark.skipif(not WHOLE.is_dir(), reason="the whole of GSM8K is not beside the clone")
def test_the_whole(tmp_path):
  prepare(WHOLE, tmp_path)
  task = from_rows(*splits(tmp_path), GSM8KFields())
  assert (len(task.train), len(task.held_out)) == (7473, 1319)
  files = gsm8k(str(WHOLE / "train.jsonl"), str(WHOLE / "test.jsonl"))
  assert whole(task) == whole(files)


def test_by_the_names_of_fields_and_by_parts_of_splits(data_dir):
  fields = Fields("question", "short_answer", "annotation", ["answer"])
  rows = tfds("gsm8k:1.0.0", "train[:40%]", str(data_dir))
  assert len(rows) == 10 and rows.where(3).endswith("gsm8k/train[:40%], row 4")
  example = fields(rows[9])
  answer = example.metadata["answer"]
  assert answer == f"{example.solution}#### {example.ground_truth}"


def test_the_marker_needs_no_space(tmp_path):
  for split, answer in (("train", "a\n####5"), ("test", "a\n#### 1,000")):
    row = json.dumps({"question": split, "answer": answer})
    (tmp_path / f"{split}.jsonl").write_text(f"{row}\n")
  prepare(tmp_path, tmp_path / "out")
  read = [
    Fields("question", "short_answer", "annotation")(rows[0])
    for rows in splits(tmp_path / "out")
  ]
  assert read == [Example("train", "5", "a\n"), Example("test", "1,000", "a\n")]


def test_tensorflow_is_not_loaded_where_it_is_installed(data_dir, tmp_path):
  (tmp_path / "tensorflow").mkdir()  # one that reports when it is loaded
  (tmp_path / "tensorflow" / "__init__.py").write_text(
    f"open({str(tmp_path / 'loaded')!r}, 'w').close()\n"
  )
  program = (
    "import sys\n"
    "from pgax.data import from_rows, tfds\n"
    "from pgax.tasks import GSM8KFields\n"
    f"rows = [tfds('gsm8k', x, {str(data_dir)!r}) for x in ('train', 'test')]\n"
    "print(from_rows(*rows, GSM8KFields()).train[3].ground_truth)\n"
    "print('tensorflow_datasets' in sys.modules, 'tensorflow' in sys.modules)"
  )
  done = subprocess.run(
    [sys.executable, "-c", program],
    cwd=ROOT,
    env=os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
    capture_output=True,
    text=True,
    check=True,
  )
  truth, loaded = done.stdout.splitlines()
  assert int(truth) >= 0 and loaded == "True False"
  assert not (tmp_path / "loaded").exists()


def test_what_is_not_there_is_said(data_dir, tmp_path):
  folder = str(data_dir)
  for name, split, metrics in (
    ("gsm8k", "dev", "Unknown split 'dev'. Should be one of .'train', 'test'."),
    ("gsm9k", "train", "has no dataset 'gsm9k'"),
    ("gsm8k:2.0.0", "train", "can't be read"),
  ):
    with pytest.raises(ValueError, match=metrics):
      tfds(name, split, folder)
  made = tmp_path / "gsm8k" / "1.0.0"
  made.mkdir(parents=True)
  (made / "dataset_info.json").write_text(json.dumps({"fileFormat": "tfrecord"}))
  with pytest.raises(ValueError, match="is in tfrecord files; random access needs"):
    tfds("gsm8k", "train", str(tmp_path))


def test_nothing_is_written_over_and_bad_rows_are_named(data_dir, tmp_path):
  with pytest.raises(UserError, match="exists already; remove it"):
    prepare(EXCERPT, data_dir)
  with pytest.raises(UserError, match=r"train.jsonl: No such file"):
    prepare(tmp_path, tmp_path / "out")
  (tmp_path / "train.jsonl").write_text('{"question": "a"}\n')
  with pytest.raises(UserError, match=r"train.jsonl:1: field 'answer' is missing"):
    prepare(tmp_path, tmp_path / "out")
  assert not (tmp_path / "out").exists()
