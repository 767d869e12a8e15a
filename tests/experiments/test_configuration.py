"""Config files: what they make, how they are saved, and what each says of itself."""

import dataclasses
import json
import runpy
from pathlib import Path

import pytest

from experiments import program
from experiments.preset_runs import MEASURED, command, preset_config
from pgax import algorithms
from pgax.data import byte_tokenizer
from pgax.errors import UserError
from pgax.tasks import addition, addition_steps
from pgax.training import (
  PreferenceConfig,
  RunConfig,
  build,
  entry,
  to_json,
  with_settings,
)
from pgax.training.saved import from_json

FOLDER = Path(__file__).parents[2] / "experiments" / "configs"
FILES = sorted(FOLDER.glob("[a-z]*.py"))


def read(name):
  return runpy.run_path(str(FOLDER / f"{name}.py"))["get_config"]()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_config_can_be_run_and_saved(path, monkeypatch):
  monkeypatch.chdir(FOLDER.parents[1])
  given = read(path.stem)
  run = build(given)
  assert isinstance(run, RunConfig) and run.name == path.stem
  saved = json.loads(json.dumps(to_json(given)))
  assert saved == to_json(given)
  again = build(from_json(saved))
  assert dataclasses.replace(again, task=run.task) == run
  assert again.task.train[0] == run.task.train[0]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_config_says_how_long_and_how_far(path):
  text = path.read_text()
  assert f"--config=experiments/configs/{path.name}" in text
  assert "\nTime: " in text and "\nExpect: " in text
  assert "TIME" not in text and "SCORE" not in text


def test_every_preset_has_its_time_and_score():
  assert list(MEASURED) == [preset.__name__ for preset in algorithms.presets.ALL]


@pytest.mark.parametrize("preset", algorithms.presets.ALL)
def test_every_preset_trains_the_default_job(preset):
  # Two of them know the length of a solution, one of these that of the run.
  fitted = {
    algorithms.dapo: {"overlong_buffer": 4},
    algorithms.vapo: {"alpha": 0.5, "pretraining": 10},
  }
  expected = preset(epochs=2, minibatches=2, **fitted.get(preset, {}))
  name = preset.__name__
  task = addition(digits=1)
  run = build(dataclasses.replace(preset_config(name), task=task))
  has_steps = preset is algorithms.grpo_process
  step_reward = addition_steps if has_steps else None
  job = dataclasses.replace(read("grpo"), name=name, task=task, algorithm=expected)
  assert run == dataclasses.replace(job, step_reward=step_reward)
  assert f"--algorithm={name} --workdir=runs/{name}" in command(name)
  assert ("--config." in command(name)) == (has_steps or preset in fitted)


def test_the_config_of_a_reward_model():
  given = with_settings(read("_preferences"), {"steps": 7, "data.digits": 2})
  made = build(given)
  assert isinstance(made, PreferenceConfig) and made.steps == 7
  assert len(made.data.train[0].prompt) == 6
  json.dumps(to_json(given))
  with pytest.raises(UserError, match="nowhere.*config.json can't be read"):
    build(dataclasses.replace(given, model_path="nowhere"))
  with pytest.raises(ValueError, match="batch_size is 0; it must be at least 1"):
    dataclasses.replace(given, batch_size=0)
  with pytest.raises(ValueError, match="must be of type Preferences, or entry"):
    dataclasses.replace(given, data=addition)
  with pytest.raises(UserError, match="(?s)data is .*; it must be of type Preferences"):
    build(dataclasses.replace(given, data=entry(addition)))


@pytest.mark.parametrize("text", ["{}", "[]", "", "no JSON", '{"model": 3}'])
def test_a_bad_tokenizer_file_is_reported(tmp_path, text):
  byte_tokenizer().save_pretrained(tmp_path)
  (tmp_path / "tokenizer.json").write_text(text)
  with pytest.raises(UserError, match="but its tokenizer can't be read: "):
    program.tokenizer(str(tmp_path))
