"""Parquet files, and a folder that Hugging Face's `datasets` (5.2.0) saved."""

import pickle
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet as pq

from pgax.data import Fields, from_rows, parquet, saved_dataset
from pgax.data.sources import read_problems

SAVED = Path(__file__).parent / "saved_dataset"
FIELDS = Fields("question", "answer", metadata=["about.level", "about.tags"])


def test_a_saved_dataset_of_two_files_keeps_its_order():
  task = from_rows(
    saved_dataset(str(SAVED), "train"), saved_dataset(f"{SAVED}/test"), FIELDS
  )
  numbers = [4, 1, 0, 2, 6]
  examples = [task.train[i] for i in range(len(task.train))]
  assert [x.prompt for x in examples] == [f"What is {i} + 1?" for i in numbers]
  assert [x.ground_truth for x in examples] == [str(i + 1) for i in numbers]
  assert examples[1].metadata == {"about.level": 1, "about.tags": ["sum"]}
  assert len(task.held_out) == 2
  assert pickle.loads(pickle.dumps(task)).train[4] == examples[4]


@pytest.mark.parametrize(
  ("path", "split", "message"),
  [
    (SAVED, "", "split is ''; .*saved_dataset has train, test"),
    (SAVED, "dev", "split is 'dev'"),
    (SAVED / "train", "train", "has no splits"),
    (SAVED.parent, "", r"is not a folder of datasets.save_to_disk: state.json"),
  ],
)
def test_other_folders_are_rejected(path, split, message):
  with pytest.raises(ValueError, match=message):
    saved_dataset(str(path), split)


@pytest.mark.parametrize(
  "state", ["{}", "[]", '{"_data_files": []}', '{"_data_files": [{}]}']
)
def test_a_state_without_files_is_rejected(tmp_path, state):
  (tmp_path / "state.json").write_text(state)
  with pytest.raises(
    ValueError, match="is not a folder of datasets.save_to_disk: state.json"
  ):
    saved_dataset(str(tmp_path))


def write(path, rows, **options):
  pq.write_table(pyarrow.Table.from_pylist(rows), path, **options)


def test_parquet_reads_a_file_or_a_folder(tmp_path):
  rows = [{"q": f"q{i}", "a": i / 2, "s": f"so {i}"} for i in range(7)]
  write(tmp_path / "b.parquet", rows[4:])
  write(tmp_path / "a.parquet", rows[:4], row_group_size=3)
  fields = Fields("q", "a", "s", template="Say {prompt}.")
  problems = read_problems(parquet(str(tmp_path)), fields)
  assert [problems[i].ground_truth for i in range(7)] == [str(i / 2) for i in range(7)]
  assert problems[5].prompt == "Say q5." and problems[5].solution == "so 5"
  assert len(parquet(str(tmp_path / "a.parquet"))) == 4


def test_bad_rows_are_named(tmp_path):
  path = tmp_path / "x.parquet"
  broken = pyarrow.StringArray.from_buffers(
    2, *pyarrow.array([b"good", b"\xff"]).buffers()[1:]
  )
  pq.write_table(pyarrow.table({"q": broken, "a": [float("nan"), 1.0]}), path)
  problems = read_problems(parquet(str(path)), Fields("q"), max_bad_rows=1)
  assert len(problems) == 1
  (bad_row,) = problems.bad_rows
  assert bad_row.startswith(f"{path}, row 2: UnicodeDecodeError")
  with pytest.raises(ValueError, match="row 1: field 'a' is nan; it must be finite"):
    read_problems(parquet(str(path)), Fields("q", "a"))
  write(path, [{"q": None}])
  with pytest.raises(ValueError, match="row 1: field 'q' is None; it must be text"):
    read_problems(parquet(str(path)), Fields("q"))


def test_bad_or_missing_parquet_files_are_rejected(tmp_path):
  (tmp_path / "x.parquet").write_text("no")
  with pytest.raises(ValueError, match=r"x.parquet can't be read as Parquet"):
    parquet(str(tmp_path))
  write(tmp_path / "x.parquet", [{"q": "a"}])
  write(tmp_path / "y.parquet", [{"p": "a"}])
  with pytest.raises(ValueError, match="differ in their columns"):
    parquet(str(tmp_path))
  (tmp_path / "none").mkdir()
  with pytest.raises(ValueError, match=r"has no file \*.parquet"):
    parquet(str(tmp_path / "none"))
  with pytest.raises(FileNotFoundError):
    parquet(str(tmp_path / "y"))
