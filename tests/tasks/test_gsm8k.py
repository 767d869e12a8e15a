"""GSM8K: always its excerpt, and the full data set if it is beside the clone."""

import dataclasses
import json
import pickle
from pathlib import Path

import pytest

from experiments.configs.gsm8k import get_config
from pgax.data import byte_tokenizer, json_lines
from pgax.data.sources import read_problems
from pgax.rewards import Math, R1Zero, final_answer
from pgax.tasks import GSM8KFields, gsm8k
from pgax.training import build, entry
from pgax.training.preflight import check_run

EXCERPT = Path(__file__).parents[1] / "data" / "gsm8k"
FULL = Path(__file__).parents[3] / "shared" / "data" / "gsm8k"
FILES = [(EXCERPT / "train.jsonl", 25), (EXCERPT / "test.jsonl", 25)]
if FULL.is_dir():
  FILES += [(FULL / "train.jsonl", 7473), (FULL / "test.jsonl", 1319)]


def read_gsm8k(path):
  return read_problems(json_lines(str(path)), GSM8KFields())


@pytest.mark.parametrize(("path", "count"), FILES)
def test_reference_solutions_are_right_and_changed_solutions_are_wrong(path, count):
  examples = read_gsm8k(path)
  assert len(examples) == count
  for example in map(examples.__getitem__, range(count)):
    assert final_answer("", example.solution, example.ground_truth)["reward"] == 1.0
    changed = example.solution + "1"
    assert final_answer("", changed, example.ground_truth)["reward"] == 0.0


@pytest.mark.parametrize(("path", "count"), FILES)
def test_math_verifiers_agree_on_every_solution(path, count):
  verifier, r1_zero, checked = Math(), R1Zero(), 0
  examples = read_gsm8k(path)
  for example in map(examples.__getitem__, range(len(examples))):
    truth, other = example.ground_truth, str(int(example.ground_truth) + 1)
    for answer, right in ((truth, 1.0), (other, 0.0), (truth + "1", 0.0)):
      solution = example.solution.rpartition("####")[0]
      for text in (f"{solution}#### {answer}", f"{solution}\\boxed{{{answer}}}"):
        assert verifier("", text, truth)["reward"] == right
      tagged = f"{solution}</think> <answer>{answer}</answer>"
      assert r1_zero("", tagged, truth)["reward"] == right
    assert verifier("", example.solution, truth)["reward"] == 1.0
    assert verifier("", example.solution, example.solution)["reward"] == 1.0
    checked += 1
  assert checked == count


def test_the_excerpt_has_its_license_and_no_overlap():
  assert "Permission is hereby granted" in (EXCERPT / "LICENSE").read_text()
  task = gsm8k(str(EXCERPT / "train.jsonl"), str(EXCERPT / "test.jsonl"))
  assert (len(task.train), len(task.held_out)) == (25, 25)
  assert task.bad_rows == ()


@pytest.mark.parametrize("folder", [EXCERPT, *([FULL] if FULL.is_dir() else [])])
def test_every_problem_is_within_the_limits_of_the_config(folder):
  paths = {"train_path": f"{folder}/train.jsonl", "held_out_path": f"{folder}/test.jsonl"}
  config = dataclasses.replace(get_config(), task=entry(gsm8k, **paths))
  check_run(build(config), byte_tokenizer())


GOOD = json.dumps({"question": "q é", "answer": "#### 1"}, ensure_ascii=False).encode()
BAD = {
  b"not json": "JSONDecodeError",
  b"": "the line is empty",
  b"  ": "the line is empty",
  b'["a"]': "expected a JSON object, not list",
  b'{"question": "a"}': "field 'answer' is missing; the fields are question",
  b'{"question": "a", "answer": 5}': "field 'answer' is 5; it must be text",
  b'{"question": 3, "answer": "#### 3"}': "field 'question' is 3; it must be text",
  b'{"question": " ", "answer": "#### 3"}': "field 'question' is empty",
  b'{"question": "a", "answer": "no number"}': "no number after '####'",
  b'{"question": "\xff", "answer": "#### 3"}': "UnicodeDecodeError",
  rb'{"question": "\ud800", "answer": "#### 3"}': "'question' is not UTF-8: surrogates",
  b'{"a": ' * 100_000: "the JSON is nested too deeply",
}


@pytest.mark.parametrize(("row", "message"), BAD.items(), ids=BAD.values())
def test_a_bad_row_is_named(tmp_path, row, message):
  path = tmp_path / "rows.jsonl"
  path.write_bytes(GOOD + b"\n" + row + b"\n")
  with pytest.raises(ValueError, match=message) as caught:
    read_gsm8k(path)
  assert str(caught.value).startswith(f"{path}:2: ")


def test_bad_rows_are_counted_and_skipped_up_to_a_limit(tmp_path):
  path, held_out = tmp_path / "rows.jsonl", str(EXCERPT / "test.jsonl")
  path.write_bytes(b"\n".join([GOOD, *BAD]))  # no newline at the end
  task = gsm8k(str(path), held_out, max_bad_rows=len(BAD))
  assert len(task.bad_rows) == len(BAD)
  for number, (row, message) in enumerate(zip(task.bad_rows, BAD.values(), strict=True)):
    assert row.startswith(f"{path}:{number + 2}: ") and message in row
  assert len(task.train) == 1 and task.train[0].prompt == "q é\n"
  with pytest.raises(
    ValueError, match=f"max_bad_rows allows {len(BAD) - 1} bad rows.*first: .*:2: "
  ):
    gsm8k(str(path), held_out, max_bad_rows=len(BAD) - 1)
  with pytest.raises(ValueError, match="max_bad_rows is -1"):
    gsm8k(str(path), held_out, max_bad_rows=-1)


def test_random_access_to_rows_and_pickled_tasks(tmp_path):
  rows = json_lines(str(EXCERPT / "train.jsonl"))
  lines = (EXCERPT / "train.jsonl").read_text(encoding="utf-8").splitlines()
  assert [rows[i] for i in (24, 0, 7)] == [json.loads(lines[i]) for i in (24, 0, 7)]
  assert rows[-1] == rows[24]
  with pytest.raises(IndexError):
    rows[25]
  task = gsm8k(str(EXCERPT / "train.jsonl"), str(EXCERPT / "test.jsonl"))
  assert pickle.loads(pickle.dumps(task)).train[3] == task.train[3]
  (tmp_path / "empty.jsonl").write_bytes(b"")
  with pytest.raises(
    ValueError, match="split 'train' is empty: none of 0 rows .*empty.jsonl"
  ):
    gsm8k(str(tmp_path / "empty.jsonl"), str(EXCERPT / "test.jsonl"))


def test_overlapping_splits_are_rejected():
  path = str(EXCERPT / "train.jsonl")
  with pytest.raises(ValueError, match=r"25 questions are in both splits.*train.jsonl:1"):
    gsm8k(path, path)


def test_a_template_surrounds_the_question():
  paths = [str(EXCERPT / f"{split}.jsonl") for split in ("train", "test")]
  task = gsm8k(*paths, template="Q: {prompt} {}\nA:")
  plain = gsm8k(*paths)
  assert task.train[0].prompt == f"Q: {plain.train[0].prompt[:-1]} {{}}\nA:"
  for bad in ("no place", "{prompt} {prompt}"):
    with pytest.raises(ValueError, match="it must have '{prompt}' once"):
      gsm8k(*paths, template=bad)
