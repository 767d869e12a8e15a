"""A run on data as it is: bad rows, long prompts, a mixture; interrupted, and changed."""

import dataclasses
import json

import jax
import numpy as np
import pytest

from pgax.data import Fields, Task, byte_tokenizer, from_rows, json_lines, mixture
from pgax.data.chat import Chat
from pgax.runs.json_lines import read_lines
from pgax.tasks import addition
from pgax.training import DataConfig, UserError, train
from pgax.training.batches import fit_task, prompt_collator
from pgax.training.preflight import check_run
from pgax.types import Example
from tests import tiny

DROP = DataConfig(overlong_prompts="drop")


def write(path, questions):
  rows = [json.dumps({"q": f"{q}=", "a": 1, "s": "#### 1"}) for q in questions]
  path.write_text("".join(f"{row}\n" for row in rows))


@pytest.fixture
def config(tmp_path):
  """Sums from files, three of them too long and one row bad, among generated ones."""
  train_path, held_out_path = tmp_path / "train.jsonl", tmp_path / "held_out.jsonl"
  write(train_path, ["0+1", "123+456", "1+0", "1234+1"])
  with train_path.open("a") as file:
    file.write("{}\n")
  write(held_out_path, ["1*1", "1111*1"])
  rows = json_lines(str(train_path)), json_lines(str(held_out_path))
  files = from_rows(*rows, Fields("q", "a", "s"), max_bad_rows=1)
  # As in a config: the long ones are left out of the whole, so that only they are.
  config = tiny.run_config(task=files, data=DROP)
  fitted, counts = fit_task(config, byte_tokenizer())
  assert counts == {
    "data/train": 2,
    "data/held_out": 1,
    "data/bad_rows": 1,
    "data/filtered": 0,
    "data/dropped_prompts": 3,
  }
  tasks = {"files": fitted.task, "sums": addition(digits=1, forget_carry=0.5)}
  return dataclasses.replace(config, task=mixture(tasks, {"files": 1, "sums": 3}))


def go(config, workdir, steps):
  config = dataclasses.replace(config, steps=steps)
  return train(config, byte_tokenizer(), workdir, {}, progress=False)


def test_a_mixture_continues_bit_for_bit_and_other_problems_are_rejected(config, tmp_path):
  whole = go(config, tmp_path / "whole", 3)
  go(config, tmp_path / "parts", 1)
  again = go(config, tmp_path / "parts", 3)
  for ours, theirs in zip(
    jax.tree.leaves(whole.state.params), jax.tree.leaves(again.state.params), strict=True
  ):
    np.testing.assert_array_equal(ours, theirs)
  first = read_lines(tmp_path / "parts" / "metrics.jsonl")[0]
  assert first["data/bad_rows"] == 1 and first["data/train"] == len(config.task.train)
  other = dataclasses.replace(config, task=addition(digits=1, forget_carry=0.5))
  with pytest.raises(
    UserError, match="not those that the run began with: there are 86 and"
  ):
    go(other, tmp_path / "parts", 4)


LONG = Task([Example("1+1=", "2", "2"), Example("1234+1=", "2", "2")], [Example("1", "1")])


def test_long_prompts_are_an_error_by_default():
  config = tiny.run_config(task=LONG)
  fitted, counts = fit_task(config, byte_tokenizer())
  assert fitted is config and counts["data/dropped_prompts"] == 0
  with pytest.raises(UserError, match="has 8 tokens; max_prompt_tokens allows 5"):
    check_run(fitted, byte_tokenizer())
  fitted, counts = fit_task(dataclasses.replace(config, data=DROP), byte_tokenizer())
  assert counts["data/dropped_prompts"] == 1
  check_run(fitted, byte_tokenizer())
  none = Task(LONG.train, [LONG.train[1]])
  with pytest.raises(UserError, match="all 1 prompts of the split 'held_out'"):
    fit_task(tiny.run_config(task=none, data=DROP), byte_tokenizer())


def test_a_chat_template_is_asked_for_by_the_config():
  tokenizer = byte_tokenizer()
  chat = DataConfig(chat_template=True, system_prompt="Add.")
  config = tiny.run_config(data=chat)
  with pytest.raises(UserError, match="the tokenizer has no chat template"):
    check_run(config, tokenizer)
  tokenizer.chat_template = "{% for m in messages %}{{ m.content }}{% endfor %}"
  collate = prompt_collator(config.data, tokenizer, 5)
  assert collate.chat == Chat("Add.") and collate.max_prompt_tokens == 5
  assert tokenizer.decode(collate.encode(Example("1+1=", "2"))) == "Add.1+1="
  with pytest.raises(UserError, match="has 8 tokens; max_prompt_tokens allows 5"):
    check_run(config, tokenizer)
  assert prompt_collator(DataConfig(), tokenizer, 5).chat is None


@pytest.mark.parametrize(
  ("settings", "message"),
  [
    (
      {"overlong_prompts": "cut"},
      "overlong_prompts is 'cut'; it must be one of error, drop",
    ),
    ({"system_prompt": "Add."}, "system_prompt is 'Add.' and chat_template is False"),
  ],
)
def test_bad_settings(settings, message):
  with pytest.raises(ValueError, match=message):
    DataConfig(**settings)
