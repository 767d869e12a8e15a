"""GSM8K: the excerpt always, the whole where it lies beside the clone."""

import json
from pathlib import Path

import pytest

from experiments.configs.gsm8k import get_config
from experiments.configuration import freeze
from pgax.data import byte_tokenizer, gsm8k
from pgax.data.sources import read_gsm8k
from pgax.rewards import Math, R1Zero, final_answer
from pgax.training.preflight import check_run

EXCERPT = Path(__file__).parent / "gsm8k"
WHOLE = Path(__file__).parents[3] / "shared" / "data" / "gsm8k"
FILES = [(EXCERPT / "train.jsonl", 25), (EXCERPT / "test.jsonl", 25)]
if WHOLE.is_dir():
  FILES += [(WHOLE / "train.jsonl", 7473), (WHOLE / "test.jsonl", 1319)]


@pytest.mark.parametrize(("path", "count"), FILES)
def test_reference_solutions_are_right_and_changed_ones_wrong(path, count):
  examples = read_gsm8k(path)
  assert len(examples) == count
  for example in examples:
    assert final_answer("", example.solution, example.ground_truth)["reward"] == 1.0
    changed = example.solution + "1"
    assert final_answer("", changed, example.ground_truth)["reward"] == 0.0


@pytest.mark.parametrize(("path", "count"), FILES)
def test_verifiers_of_mathematics_agree_on_every_solution(path, count):
  verifier, r1_zero, seen = Math(), R1Zero(), 0
  for example in read_gsm8k(path):
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


@pytest.mark.parametrize("folder", [EXCERPT, *([WHOLE] if WHOLE.is_dir() else [])])
def test_every_problem_is_within_the_limits_of_its_config(folder):
  config = get_config()
  config.task.train_path = f"{folder}/train.jsonl"
  config.task.held_out_path = f"{folder}/test.jsonl"
  check_run(freeze(config), byte_tokenizer())


@pytest.mark.parametrize(
  ("row", "told"),
  [
    ("not json", "JSONDecodeError"),
    ('{"question": "a"}', "KeyError: 'answer'"),
    ('{"question": "a", "answer": 5}', "AttributeError"),
    ('["a"]', "TypeError"),
    ('{"question": "a", "answer": "no number"}', "no number after '####'"),
    ('{"question": 3, "answer": "#### 3"}', "TypeError: question is 3"),
  ],
)
def test_bad_row_is_named(tmp_path, row, told):
  path = tmp_path / "rows.jsonl"
  good = json.dumps({"question": "q", "answer": "#### 1"})
  path.write_text(f"{good}\n{row}\n")
  with pytest.raises(ValueError, match=told) as caught:
    read_gsm8k(path)
  assert f"{path}:2" in str(caught.value)


def test_overlap_is_refused():
  path = str(EXCERPT / "train.jsonl")
  with pytest.raises(ValueError, match="25 questions stand in both"):
    gsm8k(path, path)
