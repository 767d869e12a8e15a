"""GSM8K: the excerpt always, the whole where it lies beside the clone."""

import json
import math
import pickle
from pathlib import Path

import numpy as np
import pytest

from experiments.configs.gsm8k import get_config
from experiments.configuration import freeze
from pgax.data import Fields, GSM8KFields, byte_tokenizer, from_rows, gsm8k, json_lines
from pgax.data.sources import read_problems
from pgax.rewards import Math, R1Zero, final_answer
from pgax.training.preflight import check_run

EXCERPT = Path(__file__).parent / "gsm8k"
WHOLE = Path(__file__).parents[3] / "shared" / "data" / "gsm8k"
FILES = [(EXCERPT / "train.jsonl", 25), (EXCERPT / "test.jsonl", 25)]
if WHOLE.is_dir():
  FILES += [(WHOLE / "train.jsonl", 7473), (WHOLE / "test.jsonl", 1319)]


def read_gsm8k(path):
  return read_problems(json_lines(str(path)), GSM8KFields())


@pytest.mark.parametrize(("path", "count"), FILES)
def test_reference_solutions_are_right_and_changed_ones_wrong(path, count):
  examples = read_gsm8k(path)
  assert len(examples) == count
  for example in map(examples.__getitem__, range(count)):
    assert final_answer("", example.solution, example.ground_truth)["reward"] == 1.0
    changed = example.solution + "1"
    assert final_answer("", changed, example.ground_truth)["reward"] == 0.0


@pytest.mark.parametrize(("path", "count"), FILES)
def test_verifiers_of_mathematics_agree_on_every_solution(path, count):
  verifier, r1_zero, seen = Math(), R1Zero(), 0
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
    seen += 1
  assert seen == count


def test_excerpt_has_its_notice_and_no_overlap():
  assert "Permission is hereby granted" in (EXCERPT / "LICENSE").read_text()
  task = gsm8k(str(EXCERPT / "train.jsonl"), str(EXCERPT / "test.jsonl"))
  assert (len(task.train), len(task.held_out)) == (25, 25)
  assert task.bad_rows == ()


@pytest.mark.parametrize("folder", [EXCERPT, *([WHOLE] if WHOLE.is_dir() else [])])
def test_every_problem_is_within_the_limits_of_its_config(folder):
  config = get_config()
  config.task.train_path = f"{folder}/train.jsonl"
  config.task.held_out_path = f"{folder}/test.jsonl"
  check_run(freeze(config), byte_tokenizer())


GOOD = json.dumps({"question": "q é", "answer": "#### 1"}, ensure_ascii=False).encode()
BAD = {
  b"not json": "JSONDecodeError",
  b"": "the line is empty",
  b"  ": "the line is empty",
  b'["a"]': "expected a JSON object, not list",
  b'{"question": "a"}': "field 'answer' is missing; there are question",
  b'{"question": "a", "answer": 5}': "field 'answer' is 5; it must be text",
  b'{"question": 3, "answer": "#### 3"}': "field 'question' is 3; it must be text",
  b'{"question": " ", "answer": "#### 3"}': "field 'question' is empty",
  b'{"question": "a", "answer": "no number"}': "no number after '####'",
  b'{"question": "\xff", "answer": "#### 3"}': "UnicodeDecodeError",
  rb'{"question": "\ud800", "answer": "#### 3"}': "'question' is not UTF-8: surrogates",
  b'{"a": ' * 100_000: "the JSON is nested too deeply",
}


@pytest.mark.parametrize(("row", "told"), BAD.items(), ids=BAD.values())
def test_bad_row_is_named(tmp_path, row, told):
  path = tmp_path / "rows.jsonl"
  path.write_bytes(GOOD + b"\n" + row + b"\n")
  with pytest.raises(ValueError, match=told) as caught:
    read_gsm8k(path)
  assert str(caught.value).startswith(f"{path}:2: ")


def test_bad_rows_are_skipped_up_to_a_number_and_counted(tmp_path):
  path, held_out = tmp_path / "rows.jsonl", str(EXCERPT / "test.jsonl")
  path.write_bytes(b"\n".join([GOOD, *BAD]))  # no newline at the end
  task = gsm8k(str(path), held_out, max_bad_rows=len(BAD))
  assert len(task.bad_rows) == len(BAD)
  for number, (row, told) in enumerate(zip(task.bad_rows, BAD.values(), strict=True)):
    assert row.startswith(f"{path}:{number + 2}: ") and told in row
  assert len(task.train) == 1 and task.train[0].prompt == "q é\n"
  with pytest.raises(
    ValueError, match=f"max_bad_rows allows {len(BAD) - 1}.*first: .*:2: "
  ):
    gsm8k(str(path), held_out, max_bad_rows=len(BAD) - 1)
  with pytest.raises(ValueError, match="max_bad_rows is -1"):
    gsm8k(str(path), held_out, max_bad_rows=-1)


def test_a_bad_row_without_a_reason_is_named():
  def parse(row):
    raise ValueError

  rows = json_lines(str(EXCERPT / "train.jsonl"))
  with pytest.raises(ValueError, match=r"train.jsonl:1: no reason is given$"):
    read_problems(rows, parse)
  assert len(read_problems(rows, parse, max_bad_rows=25).bad_rows) == 25


def test_rows_in_random_access_and_in_other_processes(tmp_path):
  rows = json_lines(str(EXCERPT / "train.jsonl"))
  lines = (EXCERPT / "train.jsonl").read_text(encoding="utf-8").splitlines()
  assert [rows[i] for i in (24, 0, 7)] == [json.loads(lines[i]) for i in (24, 0, 7)]
  assert rows[-1] == rows[24]
  with pytest.raises(IndexError):
    rows[25]
  task = gsm8k(str(EXCERPT / "train.jsonl"), str(EXCERPT / "test.jsonl"))
  assert pickle.loads(pickle.dumps(task)).train[3] == task.train[3]
  (tmp_path / "empty.jsonl").write_bytes(b"")
  with pytest.raises(ValueError, match="split 'train' is empty: of 0 rows .*empty.jsonl"):
    gsm8k(str(tmp_path / "empty.jsonl"), str(EXCERPT / "test.jsonl"))


def test_overlap_is_refused():
  path = str(EXCERPT / "train.jsonl")
  with pytest.raises(ValueError, match=r"25 questions stand in both splits.*train.jsonl:1"):
    gsm8k(path, path)


def _prompts(examples):
  return [examples[i].prompt for i in range(len(examples))]


def test_a_fraction_is_held_out_whatever_else_there_is(tmp_path):
  lines = [json.dumps({"q": f"{i}?", "a": str(i)}) for i in range(400)]
  aside = []
  for size in (300, 400):
    path = tmp_path / f"{size}.jsonl"
    path.write_text("\n".join([*lines[:size], lines[0], "{}"]))  # one twice, one bad
    rows, parse = json_lines(str(path)), Fields("q", "a")
    task = from_rows(rows, 0.2, parse, max_bad_rows=1)
    train, held_out = _prompts(task.train), _prompts(task.held_out)
    assert len(train + held_out) == size + 1 and not set(train) & set(held_out)
    assert len(task.bad_rows) == 1
    aside.append(set(held_out))
  assert aside[0] < aside[1] and 60 < len(aside[1]) < 100
  for fraction in (0.0, 1, -0.1, math.nan):
    with pytest.raises(ValueError, match=f"held_out is {fraction}; it must be rows, or a"):
      from_rows(rows, fraction, parse, max_bad_rows=1)
  for fraction in (1e-9, np.float32(1 - 1e-7)):
    with pytest.raises(ValueError, match="leaves one side of 401 problems empty"):
      from_rows(rows, fraction, parse, max_bad_rows=1)


def test_a_template_stands_around_the_question():
  paths = [str(EXCERPT / f"{split}.jsonl") for split in ("train", "test")]
  task = gsm8k(*paths, template="Q: {prompt} {}\nA:")
  plain = gsm8k(*paths)
  assert task.train[0].prompt == f"Q: {plain.train[0].prompt[:-1]} {{}}\nA:"
  for bad in ("no place", "{prompt} {prompt}"):
    with pytest.raises(ValueError, match="it must have '{prompt}' once"):
      gsm8k(*paths, template=bad)
