"""Configs: frozen dataclasses, a round trip through JSON, and what is rejected."""

import dataclasses
import functools
import json
import runpy
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from ml_collections import ConfigDict

from experiments import program
from experiments.configuration import (
  entry,
  freeze,
  freeze_preferences,
  run_config,
  saved_run,
)
from experiments.saved_config import from_json, to_json
from pgax import aggregation, algorithms
from pgax.algorithms import Algorithm
from pgax.data import Fields, byte_tokenizer, filtered, from_rows, mixture, saved_dataset
from pgax.errors import UserError
from pgax.models import DecoderConfig
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
from pgax.tasks import addition
from pgax.training import LoraConfig, PreferenceConfig, RewardModelConfig, RunConfig
from pgax.training.renamed import RENAMED_PREFERENCES, RENAMED_RUN

FOLDER = Path(__file__).parents[2] / "experiments" / "configs"
FILES = sorted(FOLDER.glob("[a-z]*.py"))


def config(**arguments):
  return run_config(
    "x", entry(addition, digits=1), final_answer, entry(algorithms.grpo, **arguments)
  )


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_config_can_be_run_and_saved(path, monkeypatch):
  monkeypatch.chdir(FOLDER.parents[1])
  given = runpy.run_path(str(path))["get_config"]()
  frozen = freeze(given)
  assert isinstance(frozen, RunConfig) and frozen.name == path.stem
  saved = json.loads(json.dumps(to_json(given)))
  again = freeze(from_json(saved))
  same = {f.name for f in dataclasses.fields(RunConfig)} - {"task"}
  assert all(getattr(again, name) == getattr(frozen, name) for name in same)
  assert again.task.train[0] == frozen.task.train[0]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_config_says_how_long_and_how_far(path):
  text = path.read_text()
  assert f"--config=experiments/configs/{path.name}" in text
  assert "\nTime: " in text and "\nExpect: " in text
  assert "TIME" not in text and "SCORE" not in text


@pytest.mark.parametrize("preset", algorithms.presets.ALL)
def test_every_preset_has_its_config(preset):
  given = runpy.run_path(str(FOLDER / f"{preset.__name__}.py"))["get_config"]()
  # Two of them know the length of a solution, one of these that of the run.
  fitted = {
    algorithms.dapo: {"overlong_buffer": 4},
    algorithms.vapo: {"alpha": 0.5, "pretraining": 10},
  }
  expected = preset(epochs=2, minibatches=2, **fitted.get(preset, {}))
  assert freeze(given).algorithm == expected
  assert (freeze(given).step_reward is None) == (preset is not algorithms.grpo_process)


def test_the_config_of_a_reward_model():
  given = runpy.run_path(str(FOLDER / "_preferences.py"))["get_config"]()
  given.steps, given.data.digits = 7, 2
  frozen = freeze_preferences(given)
  assert isinstance(frozen, PreferenceConfig) and frozen.steps == 7
  assert len(frozen.data.train[0].prompt) == 6
  json.dumps(to_json(given))
  given.model.path = "nowhere"
  with pytest.raises(UserError, match="nowhere.*config.json can't be read"):
    freeze_preferences(given)
  given.model.path, given.batch_size = "", 0
  with pytest.raises(UserError, match="batch_size is 0; it must be at least 1"):
    freeze_preferences(given)


def test_a_config_has_the_library_defaults_and_none_of_the_demo():
  frozen = freeze(config())
  given = {"name", "task", "reward", "algorithm", "model"}
  plain = RunConfig(**{name: getattr(frozen, name) for name in given})
  assert frozen == plain
  assert plain.supervised.steps == 0 and not plain.sampling.stop_strings
  # With a model's directory, nothing of the default decoder has to be undone either.
  names = {"dtype", "attention", "remat", "path"}
  fields = {x.name for x in dataclasses.fields(DecoderConfig)}
  assert set(config().model) == fields | names


def test_adapters_and_a_reward_model_are_settings():
  given = config()
  given.lora.rank, given.lora.targets = 4, ("blocks.mlp.*",)
  given.reward_model.path, given.reward_model.weight = "some/where", 0.5
  frozen = freeze(from_json(json.loads(json.dumps(to_json(given)))))
  assert frozen.lora == LoraConfig(4, targets=("blocks.mlp.*",))
  assert frozen.reward_model == RewardModelConfig("some/where", weight=0.5)
  given.lora.rank = -1
  with pytest.raises(UserError, match="lora.rank is -1; it must be at least 0"):
    freeze(given)


def test_arguments_reach_the_function():
  assert freeze(config(clip_high=0.28)).algorithm == algorithms.grpo(clip_high=0.28)
  changed = config()
  changed.algorithm.epochs = 3
  changed.supervised.optimizer.learning_rate = 0.5
  changed.sampling.group_size = 2
  frozen = freeze(changed)
  assert frozen.algorithm.epochs == 3 and frozen.sampling.group_size == 2
  assert frozen.supervised.optimizer.learning_rate == 0.5


def test_how_answers_are_read_is_a_setting():
  given = config()
  assert freeze(given).evaluation.extract_answer is marked_answer
  for answer in (None, extract_answer):
    with given.unlocked():
      given.evaluation.extract_answer = answer
    saved = json.loads(json.dumps(to_json(given)))
    assert freeze(from_json(saved)).evaluation.extract_answer is answer
  # A function deeper down is saved in its own way, regardless of its key.
  functions, weights = {"answer": final_answer}, {"answer": 1.0}
  reward = entry(combine, functions=functions, weights=weights)
  given = run_config("x", entry(addition), reward, entry(algorithms.grpo))
  saved = json.loads(json.dumps(to_json(given)))
  assert freeze(from_json(saved)).reward == combine(functions, weights)


def test_an_argument_without_a_value_keeps_its_type():
  dr_grpo = entry(algorithms.dr_grpo)
  assert dr_grpo.max_length is None
  dr_grpo.max_length = 7
  with pytest.raises(TypeError):
    dr_grpo.max_length = "seven"


def test_no_setting_has_the_name_of_a_method():
  """Flags and attributes would then reach the method: `config.update` is one."""

  def names(part):
    for name, value in part.items():
      yield name
      if isinstance(value, ConfigDict):
        yield from names(value)

  assert not [name for name in names(config()) if hasattr(ConfigDict, name)]


def test_parts_of_the_update_are_settings():
  given = config(epochs=2)
  given.policy_update.target_kl = 0.1
  assert freeze(given).algorithm.target_kl == 0.1


def test_unknown_keys_are_named_with_what_is_allowed():
  bad = config()
  with bad.unlocked():
    bad.sampling.temperatur = 1.0
  with pytest.raises(
    UserError, match="config.sampling has no key 'temperatur'.*temperature"
  ):
    freeze(bad)
  bad = config()
  with bad.unlocked():
    bad.algorithm.beta = 1.0
  with pytest.raises(UserError, match="config.algorithm has no key 'beta'.*kl_coef"):
    freeze(bad)
  with pytest.raises(TypeError, match="beta"):
    entry(algorithms.grpo, beta=1.0)


def test_bad_values_are_named():
  bad = config()
  bad.sampling.prompts_per_step = 0
  with pytest.raises(UserError, match="prompts_per_step is 0; it must be at least 1"):
    freeze(bad)
  bad = config()
  with bad.unlocked():
    del bad.task
  with pytest.raises(UserError, match="config lacks task"):
    freeze(bad)


def test_a_file_that_is_not_there():
  from pgax.tasks import gsm8k

  task = entry(gsm8k, train_path="nowhere.jsonl", held_out_path="nowhere.jsonl")
  bad = run_config("x", task, final_answer, entry(algorithms.grpo))
  with pytest.raises(UserError, match=r"nowhere.jsonl can't be read: No such file"):
    freeze(bad)


def test_sources_mixtures_and_filters_are_entries_in_entries(tmp_path):
  data = FOLDER.parents[1] / "tests" / "data"
  saved, rates = f"{data}/saved_dataset", tmp_path / "rates.jsonl"
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
  given = run_config("x", task, reward, entry(algorithms.grpo))
  given.task.weights.sums = 4.0  # as the command line sets it
  again = from_json(json.loads(json.dumps(to_json(given))))
  for config_dict in (given, again):
    frozen = freeze(config_dict)
    assert frozen.task.train.weights == (1.0, 4.0) and frozen.task.filtered == 4
    prompts = {frozen.task.train[i].prompt for i in range(len(frozen.task.train))}
    assert "What is 1 + 1?" in prompts and "What is 2 + 1?" not in prompts
    assert frozen.reward == ByTask((("files", NumericMatch()), ("sums", final_answer)))
  given.task.tasks.files.task.parse.prompt = "nothing"
  with pytest.raises(
    UserError, match="field 'nothing' is missing; the fields are about, answer"
  ):
    freeze(given)


def test_a_run_without_a_record(tmp_path):
  with pytest.raises(UserError, match="has no config.json; give the folder of a run"):
    saved_run(tmp_path)
  (tmp_path / "config.json").write_text("{}")
  with pytest.raises(UserError, match="config.json of .* is empty: .* without a record"):
    saved_run(tmp_path)


@pytest.mark.parametrize("name", ["pgax.nothing:here", "nothing", "pgax.rewards:nothing"])
def test_a_saved_function_that_is_gone(name):
  saved = to_json(config()) | {"reward": name}
  with pytest.raises(UserError, match="saved configuration can't be used"):
    from_json(saved)


def test_rewards_may_be_entries_in_entries():
  functions = {"math": entry(Math, plain=False), "marked": final_answer}
  functions["exact"] = NumericMatch()  # a value is the entry of its class
  weights = {"math": 1.0, "marked": 0.5, "exact": 0.0}
  reward = entry(combine, functions=functions, weights=weights)
  given = run_config("x", entry(addition, digits=1), reward, entry(algorithms.grpo))
  given.reward.weights.math = 2.0  # as the command line sets it
  parts = ("marked", final_answer, 0.5), ("math", Math(plain=False), 2.0)
  expected = Combined((("exact", NumericMatch(), 0.0), *parts))
  assert freeze(given).reward == expected
  saved = json.loads(json.dumps(to_json(given)))
  assert freeze(from_json(saved)).reward == expected
  given.reward.functions.math.plane = True
  with pytest.raises(UserError, match=r"config.reward.functions.math has no key 'plane'"):
    freeze(given)


def test_a_value_is_the_entry_of_its_class():
  grpo = algorithms.grpo(kl_coef=0.1)
  mine = dataclasses.replace(grpo, aggregation=aggregation.token_mean)
  shaped = algorithms.dapo(overlong_buffer=8)
  parts = {name: getattr(mine, name) for name in ("advantage", "surrogate", "aggregation")}
  whole = entry(Algorithm, **parts)
  for algorithm in (mine, algorithms.ppo(), shaped, whole):
    given = run_config("x", entry(addition, digits=1), NumericMatch(), algorithm)
    given.algorithm.epochs = 3  # as the command line sets it
    again = from_json(json.loads(json.dumps(to_json(given))))
    for config_dict in (given, again):
      frozen = freeze(config_dict)
      assert frozen.algorithm.epochs == 3 and frozen.reward == NumericMatch()
      if algorithm is not whole:
        assert frozen.algorithm == dataclasses.replace(algorithm, epochs=3)


@pytest.mark.parametrize(
  ("name", "value", "message"),
  [
    ("reward", lambda *_: {"reward": 1.0}, "config.reward is <function <lambda>"),
    ("reward", functools.partial(final_answer), "config.reward is functools.partial"),
    ("task", addition(digits=1), "config.task is a Task, which can't be saved"),
    ("name", np.float32(1), "config.name is a float32, which"),
    ("name", {1: 1}, "config.name is a dict, which"),
    (
      "algorithm",
      algorithms.grpo,
      "algorithm is <function grpo.*must be of type Algorithm",
    ),
  ],
)
def test_what_can_not_be_saved_is_rejected(name, value, message):
  given = config()
  with given.ignore_type():
    given[name] = value
  with pytest.raises(UserError, match=message):
    freeze(given) and to_json(given)


def test_a_function_of_a_config_file_is_rejected(monkeypatch):
  # ml_collections makes a module of the file, which only this process has.
  module = types.ModuleType("config_config")
  exec("def mine(*_): return {'reward': 1.0}", vars(module))
  monkeypatch.setitem(sys.modules, module.__name__, module)
  given = config()
  given.reward = module.mine
  with pytest.raises(UserError, match="mine.*a config file is not: put it into a file"):
    to_json(given)


def test_fields_of_an_arguments_value_can_be_set():
  given = run_config("x", entry(addition, digits=1), entry(Code), entry(algorithms.grpo))
  given.reward.limits.seconds = 2.0
  saved = json.loads(json.dumps(to_json(given)))
  for config_dict in (given, from_json(saved)):
    assert freeze(config_dict).reward == Code(Limits(seconds=2.0))


@pytest.mark.parametrize("name", RENAMED_RUN)
def test_settings_of_before_name_the_new_ones(name):
  given, (*section, key) = config(), name.split(".")
  part = given[section[0]] if section else given
  with given.unlocked():
    part[key] = 1
  with pytest.raises(
    UserError, match=f"'{name}' any more: it is '{RENAMED_RUN[name]}' now"
  ):
    freeze(given)
  for step in RENAMED_RUN[name].split("."):  # the new one exists
    given = given[step]


@pytest.mark.parametrize("name", RENAMED_PREFERENCES)
def test_settings_of_before_of_a_reward_model_name_the_new_ones(name):
  given = runpy.run_path(str(FOLDER / "_preferences.py"))["get_config"]()
  with given.unlocked():
    given[name] = 1
  message = f"'{name}' any more: it is '{RENAMED_PREFERENCES[name]}' now"
  with pytest.raises(UserError, match=message):
    freeze_preferences(given)
  for step in RENAMED_PREFERENCES[name].split("."):
    given = given[step]


def test_runs_of_before_are_rejected(tmp_path):
  saved = to_json(config()) | {"eval_every": 5}
  (tmp_path / "config.json").write_text(json.dumps(saved))
  with pytest.raises(UserError, match="from an earlier version .* 'evaluation.every' now"):
    saved_run(tmp_path)


@pytest.mark.parametrize("text", ["{}", "[]", "", "no JSON", '{"model": 3}'])
def test_a_bad_tokenizer_file_is_reported(tmp_path, text):
  byte_tokenizer().save_pretrained(tmp_path)
  (tmp_path / "tokenizer.json").write_text(text)
  with pytest.raises(UserError, match="but its tokenizer can't be read: "):
    program.tokenizer(str(tmp_path))
