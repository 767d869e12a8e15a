"""Configurations: parts that functions make, changed settings, and the way to JSON."""

import dataclasses
import functools
import json
import sys
import types
from pathlib import Path

import numpy as np
import pytest

from pgax import aggregation, algorithms
from pgax.algorithms import Algorithm, UpdateConfig
from pgax.data import Fields, byte_tokenizer, filtered, from_rows, mixture, saved_dataset
from pgax.errors import UserError
from pgax.rewards import (
  ByTask,
  Code,
  Combined,
  Math,
  NumericMatch,
  by_task,
  combine,
  final_answer,
)
from pgax.rewards.answers import extract_answer, marked_answer
from pgax.sandbox import Limits
from pgax.settings import made
from pgax.tasks import addition, gsm8k
from pgax.training import (
  LoraConfig,
  RewardModelConfig,
  RunConfig,
  SupervisedConfig,
  build,
  entry,
  saved_run,
  to_json,
  train,
  with_settings,
)
from pgax.training.saved import check_layout, from_json, record_of
from tests import tiny

DATA = Path(__file__).parents[1] / "data"


def config(task=None, reward=final_answer, algorithm=None, **settings):
  task = entry(addition, digits=1) if task is None else task
  algorithm = entry(algorithms.grpo) if algorithm is None else algorithm
  return RunConfig("x", task, reward, algorithm, **settings)


def any_arguments(first=1, *more, **named):
  return first, more, named


def both_ways(given):
  """The configuration, and the same from JSON."""
  return build(given), build(from_json(json.loads(json.dumps(to_json(given)))))


def test_building_changes_nothing_that_is_made():
  run = build(config())
  assert run == build(run) == dataclasses.replace(config(), **vars(run))
  assert run.algorithm == algorithms.grpo() and len(run.task.train) > 1
  alone = build(config(entry(gsm8k, train_path="x", held_out_path="x")), with_task=False)
  assert len(alone.task.train) == 1


def test_a_configuration_can_be_read():
  text = repr(config())
  assert "task=entry(addition, digits=1, forget_carry=0.0, seed=0)" in text
  assert hash(entry(algorithms.grpo)) == hash(entry(algorithms.grpo, clip_high=0.2))


def test_adapters_and_a_reward_model_are_settings():
  changes = {"lora.rank": 4, "lora.targets": ("blocks.mlp.*",)}
  changes |= {"reward_model.path": "some/where", "reward_model.weight": 0.5}
  for run in both_ways(with_settings(config(), changes)):
    assert run.lora == LoraConfig(4, targets=("blocks.mlp.*",))
    assert run.reward_model == RewardModelConfig("some/where", weight=0.5)
  with pytest.raises(ValueError, match="lora.rank is -1; it must be at least 0"):
    with_settings(config(), {"lora.rank": -1})


def test_arguments_reach_the_function():
  changes = {"algorithm.clip_high": 0.28, "algorithm.epochs": 3}
  changes |= {"supervised.optimizer.learning_rate": 0.5, "sampling.group_size": 2}
  run = build(with_settings(config(), changes))
  assert run.algorithm == algorithms.grpo(clip_high=0.28, epochs=3)
  assert run.supervised.optimizer.learning_rate == 0.5 and run.sampling.group_size == 2


def test_arguments_of_any_name_stay_settings():
  given = with_settings(entry(any_arguments, a=2), {"a": 3, "first": 4})
  assert made(given) == (4, (), {"a": 3})


def test_settings_are_changed_at_once():
  changes = {"model.num_heads": 3, "model.num_kv_heads": 3, "sampling.lag": 0}
  model = with_settings(config(), changes).model
  assert (model.num_heads, model.num_kv_heads) == (3, 3)
  changes = {"task": entry(addition, digits=2), "task.digits": 3}
  assert with_settings(config(), changes).task == entry(addition, digits=3)


def test_how_answers_are_read_is_a_setting():
  assert config().evaluation.extract_answer is marked_answer
  for answer in (None, extract_answer):
    given = with_settings(config(), {"evaluation.extract_answer": answer})
    assert [x.evaluation.extract_answer for x in both_ways(given)] == [answer] * 2
  # A function deeper down is saved in its own way, regardless of its key.
  functions, weights = {"answer": final_answer}, {"answer": 1.0}
  reward = entry(combine, functions=functions, weights=weights)
  for run in both_ways(config(reward=reward)):
    assert run.reward == combine(functions, weights)


def test_parts_of_the_update_come_and_go():
  run = build(config(algorithm=algorithms.grpo(epochs=2)))
  stopped = with_settings(run, {"policy_update.target_kl": 0.1})
  assert stopped.trained_algorithm.target_kl == 0.1
  assert stopped.step_config.algorithm == stopped.trained_algorithm
  assert stopped.algorithm == run.algorithm == run.trained_algorithm
  assert dataclasses.replace(stopped, policy_update=UpdateConfig()) == run
  with pytest.raises(UserError, match="target_kl is 0.1 and there is one optimizer step"):
    build(with_settings(config(), {"policy_update.target_kl": 0.1}))


def test_unknown_keys_are_named_with_what_is_allowed():
  for path, message in {
    "sampling.temperatur": "config.sampling has no key 'temperatur'; allowed are banned.*"
    "Did you mean 'temperature'?",
    "algorithm.beta": "config.algorithm has no key 'beta'; allowed are clip.*kl_coef",
    "name.first": "config.name has no key 'first'; allowed are no keys",
  }.items():
    with pytest.raises(UserError, match=message):
      with_settings(config(), {path: 1.0})
  with pytest.raises(TypeError, match="beta"):
    entry(algorithms.grpo, beta=1.0)
  with pytest.raises(TypeError, match="task"):
    RunConfig("x", reward=final_answer, algorithm=algorithms.grpo())


def test_bad_values_are_named():
  with pytest.raises(ValueError, match="prompts_per_step is 0; it must be at least 1"):
    with_settings(config(), {"sampling.prompts_per_step": 0})
  with pytest.raises(UserError, match="scale_rewards is 'all'; allowed are"):
    build(config(algorithm=entry(algorithms.grpo, scale_rewards="all")))
  task = entry(gsm8k, train_path="nowhere.jsonl", held_out_path="nowhere.jsonl")
  with pytest.raises(UserError, match=r"nowhere.jsonl can't be read: No such file"):
    build(config(task))


def test_sources_mixtures_and_filters_are_entries_in_entries(tmp_path):
  saved, rates = f"{DATA}/saved_dataset", tmp_path / "rates.jsonl"
  rows = [entry(saved_dataset, path=saved, split=split) for split in ("train", "test")]
  fields = entry(Fields, prompt="question", ground_truth="answer", metadata=("about",))
  files = entry(from_rows, train=rows[0], held_out=rows[1], parse=fields)
  rates.write_text('{}\n{"prompt": "What is 1 + 1?", "rate": 0.5}\n')
  tasks = {
    "files": entry(filtered, task=files, path=str(rates)),
    "sums": entry(addition, digits=1),
  }
  task = entry(mixture, tasks=tasks, weights={"files": 1.0, "sums": 1.0})
  reward = entry(by_task, functions={"files": entry(NumericMatch), "sums": final_answer})
  given = with_settings(config(task, reward), {"task.weights.sums": 4.0})
  for run in both_ways(given):
    assert run.task.train.weights == (1.0, 4.0) and run.task.filtered == 4
    prompts = {run.task.train[i].prompt for i in range(len(run.task.train))}
    assert "What is 1 + 1?" in prompts and "What is 2 + 1?" not in prompts
    assert run.reward == ByTask((("files", NumericMatch()), ("sums", final_answer)))
  given = with_settings(given, {"task.tasks.files.task.parse.prompt": "nothing"})
  with pytest.raises(
    UserError, match="field 'nothing' is missing; the fields are about, answer"
  ):
    build(given)


def test_a_run_without_a_record(tmp_path):
  with pytest.raises(UserError, match="has no config.json; give the folder of a run"):
    saved_run(tmp_path)
  (tmp_path / "config.json").write_text("{}")
  with pytest.raises(UserError, match="config.json of .* is empty: .* without a record"):
    saved_run(tmp_path)


@pytest.mark.parametrize("name", ["pgax.nothing:here", "nothing", "pgax.rewards:nothing"])
def test_a_saved_function_that_is_gone(name):
  saved = to_json(config()) | {"reward": {"callable": name}}
  with pytest.raises(UserError, match="saved configuration can't be used"):
    from_json(saved)


@pytest.mark.parametrize("change", [{"tsak": 1}, {"sampling": {"groups": 1}}, {"data": 3}])
def test_a_saved_setting_that_is_gone(change):
  with pytest.raises(UserError, match="saved configuration can't be used"):
    from_json(to_json(config()) | change)


def test_rewards_may_be_entries_in_entries():
  functions = {"math": entry(Math, plain=False), "marked": final_answer}
  functions["exact"] = NumericMatch()
  weights = {"math": 1.0, "marked": 0.5, "exact": 0.0}
  reward = entry(combine, functions=functions, weights=weights)
  given = with_settings(config(reward=reward), {"reward.weights.math": 2.0})
  parts = ("marked", final_answer, 0.5), ("math", Math(plain=False), 2.0)
  for run in both_ways(given):
    assert run.reward == Combined((("exact", NumericMatch(), 0.0), *parts))
  with pytest.raises(UserError, match=r"config.reward.functions.math has no key 'plane'"):
    with_settings(given, {"reward.functions.math.plane": True})


def test_fields_of_values_can_be_set():
  grpo = algorithms.grpo(kl_coef=0.1)
  mine = dataclasses.replace(grpo, aggregation=aggregation.token_mean)
  shaped = algorithms.dapo(overlong_buffer=8)
  parts = {name: getattr(mine, name) for name in ("advantage", "surrogate", "aggregation")}
  for algorithm in (mine, algorithms.ppo(), shaped, entry(Algorithm, **parts)):
    given = config(algorithm=algorithm, reward=NumericMatch())
    changes = {"algorithm.epochs": 3, "algorithm.surrogate.clip_high": 0.3}
    for run in both_ways(with_settings(given, changes)):
      assert run.algorithm.epochs == 3 and run.reward == NumericMatch()
      assert run.algorithm.surrogate.clip_high == 0.3
      if isinstance(algorithm, Algorithm):
        surrogate = dataclasses.replace(algorithm.surrogate, clip_high=0.3)
        changed = dataclasses.replace(algorithm, epochs=3, surrogate=surrogate)
        assert run.algorithm == changed
  with_coef = with_settings(config(algorithm=shaped), {"algorithm.shaping.0.coef": 0.5})
  assert with_coef.algorithm.shaping[0].coef == 0.5
  given = with_settings(config(reward=entry(Code)), {"reward.limits.seconds": 2.0})
  assert [run.reward for run in both_ways(given)] == [Code(Limits(seconds=2.0))] * 2


@pytest.mark.parametrize(
  ("name", "value", "message"),
  [
    ("reward", lambda *_: {"reward": 1.0}, "config.reward is <function <lambda>"),
    ("reward", functools.partial(final_answer), "config.reward is functools.partial"),
    ("task", addition(digits=1), "config.task is a Task, which can't be saved"),
    ("name", np.float32(1), "config.name is a float32, which"),
    ("name", {1: 1}, "config.name is a dict, which"),
    ("name", {"function": 1}, "config.name has a setting 'function', which a saved"),
    ("name", entry(any_arguments, callable=1), "config.name has a setting 'callable'"),
  ],
)
def test_what_can_not_be_saved_is_rejected(name, value, message):
  with pytest.raises(UserError, match=message):
    to_json(dataclasses.replace(config(), **{name: value}))


@pytest.mark.parametrize(
  ("name", "value", "message"),
  [
    (
      "algorithm",
      algorithms.grpo,
      "algorithm is <function .*must be of type Algorithm",
    ),
    ("task", None, "task is None; it must be of type Task, or entry"),
    ("reward", 3, "reward is 3; it must be a function"),
    ("sampling", LoraConfig(), "sampling is LoraConfig.*must be of type SamplingConfig"),
    ("model", entry(addition), "model is entry.*; it must be of type DecoderConfig"),
  ],
)
def test_parts_of_another_type_are_rejected(name, value, message):
  with pytest.raises(ValueError, match=message):
    dataclasses.replace(config(), **{name: value})


def test_a_function_of_a_config_file_is_rejected(monkeypatch):
  module = types.ModuleType("config_config")
  exec("def mine(*_): return {'reward': 1.0}", vars(module))
  monkeypatch.setitem(sys.modules, module.__name__, module)
  with pytest.raises(UserError, match="mine.*a config file is not: put it into a file"):
    to_json(config(reward=module.mine))


def test_runs_of_before_are_rejected(tmp_path):
  record = to_json(config())
  saved = {name: value for name, value in record.items() if name != "layout"}
  (tmp_path / "config.json").write_text(json.dumps(saved))
  for call in (saved_run, functools.partial(check_layout, record=record)):
    with pytest.raises(UserError, match="from an earlier version of pgax, whose"):
      call(tmp_path)


def test_a_value_is_trained_and_recorded(tmp_path):
  tiny_run = tiny.run_config(steps=0, supervised=SupervisedConfig(steps=0))
  parts = {"task": entry(addition, digits=1), "algorithm": entry(algorithms.rloo)}
  given = dataclasses.replace(tiny_run, **parts)
  result = train(given, byte_tokenizer(), tmp_path / "run", progress=False)
  assert result.finished and saved_run(tmp_path / "run").algorithm == algorithms.rloo()
  other = with_settings(given, {"algorithm.kl_coef": 0.1})
  with pytest.raises(UserError, match="kl_coef is 0.1, but the run in .* has 0.05"):
    train(other, byte_tokenizer(), tmp_path / "run", progress=False)
  # A task that is no entry can't be recorded, and then nothing is.
  made = build(given)
  assert record_of(made) == {} and record_of(given) == to_json(given)
