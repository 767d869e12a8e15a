"""Settings as text: their types, and `--help`, where every one of them has a sentence."""

import dataclasses
from collections.abc import Callable
from typing import Literal

import pytest

from experiments.config_flag import PRESETS, with_preset
from experiments.configs import _preferences, grpo, gsm8k
from experiments.settings import (
  describe_settings,
  docstring_items,
  list_settings,
  setting_kind,
  setting_path,
  with_texts,
)
from pgax import algorithms
from pgax.errors import UserError
from pgax.rewards import final_answer
from pgax.training import entry

CONFIG = grpo.get_config()


PAIRS = _preferences.get_config()


@pytest.mark.parametrize("config", [CONFIG, PAIRS], ids=["run", "pairs"])
def test_every_setting_has_a_sentence(config):
  settings = list(list_settings(config))
  assert len(settings) > 30
  assert [setting for setting, _, _, sentence in settings if len(sentence) < 10] == []


@pytest.mark.parametrize("name", PRESETS)
def test_every_setting_of_a_preset_has_a_sentence(name):
  listed = list(list_settings(with_preset(CONFIG, name).algorithm))
  assert {"config.epochs", "config.minibatches"} <= {name for name, *_ in listed}
  assert all(len(sentence) > 10 for *_, sentence in listed)


def test_settings_are_listed_once_with_their_default():
  names = [name for name, *_ in list_settings(CONFIG)]
  assert len(names) == len(set(names))
  assert names.index("config.steps") < names.index("config.algorithm.clip_high")
  text = describe_settings(CONFIG)
  assert "  --config.steps  (int, default 40)\n      number of policy" in text
  assert "\n\n  --config.sampling.prompts_per_step  (int, default 32)" in text
  assert "  --config.sampling.banned_tokens  (tuple, default ())" in text
  assert "default pgax.rewards.math:final_answer)" in text
  text = describe_settings(dataclasses.replace(CONFIG, algorithm=algorithms.grpo()))
  assert "--config.algorithm.surrogate.clip_high  (float, default 0.2)" in text


def options(size: int | None = None, kind: Literal["a", "b"] = "a", plain=3, *, other=None):
  """A function with settings of several types."""
  return size, kind, plain, other


@pytest.mark.parametrize(
  ("path", "text", "value"),
  [
    ("steps", "7", 7),
    ("optimizer.learning_rate", "1", 1.0),
    ("data.chat_template", "true", True),
    ("learner.keep_reference", "False", False),
    ("name", "8 words", "8 words"),
    ("model.path", "some/where", "some/where"),
    ("sampling.banned_tokens", "3, 4", (3, 4)),
    ("sampling.banned_tokens", "()", ()),
    ("sampling.banned_tokens", "5", (5,)),
    ("sampling.stop_strings", "</answer>,\\n", ("</answer>", "\\n")),
    ("sampling.stop_strings", "('a,b', 'c')", ("a,b", "c")),
    ("sampling.stop_strings", "1", ("1",)),
    ("sampling.logit_bias", "((1, 0.5),)", ((1, 0.5),)),
    ("lora.targets", "blocks.mlp.*", ("blocks.mlp.*",)),
    ("reward", "pgax.rewards:final_answer", final_answer),
    ("evaluation.extract_answer", "None", None),
    ("task.size", "4", 4),
    ("task.size", "None", None),
    ("task.kind", "b", "b"),
    ("task.plain", "5", 5),
  ],
)
def test_text_is_parsed_by_the_type_of_the_setting(path, text, value):
  config = dataclasses.replace(CONFIG, task=entry(options, size=3))
  changed = with_texts(config, {path: text})
  for key in setting_path(path).split("."):
    is_entry = hasattr(changed, "arguments")
    changed = dict(changed.arguments)[key] if is_entry else getattr(changed, key)
  assert changed == value and type(changed) is type(value)


@pytest.mark.parametrize(
  ("path", "text", "message"),
  [
    ("steps", "many", "--config.steps=many; it must be of type int"),
    ("steps", "1.5", "--config.steps=1.5; it must be of type int"),
    ("data.chat_template", "maybe", "chat_template=maybe; it must be of type bool"),
    ("sampling.banned_tokens", "a", "banned_tokens=a; it must be of type tuple"),
    ("reward", "final_answer", "reward=final_answer; it must be of type module:name"),
    ("reward", "pgax.rewards:none", "it must be of type module:name of a function"),
    ("sampling.group_size", "0", "group_size is 0; it must be at least 1"),
    ("task", "x", "config.task can't be given as text"),
    ("task.other", "x", "config.task.other can't be given as text"),
    ("sampling", "x", "config.sampling can't be given as text"),
    ("model.paths", "x", "config.model has no key 'paths'; allowed are activation"),
  ],
)
def test_text_of_another_type_is_rejected(path, text, message):
  config = dataclasses.replace(CONFIG, task=entry(options))
  with pytest.raises(UserError, match=message):
    with_texts(config, {path: text})


def test_a_function_of_an_algorithm_has_a_kind():
  config = dataclasses.replace(CONFIG, algorithm=algorithms.grpo())
  assert setting_kind(config, "algorithm.aggregation").type is Callable
  assert setting_kind(config, "algorithm.kl") is None


def test_a_preset_keeps_the_schedule_of_the_config():
  for name in ("ppo", "vapo", "rloo"):
    changed = with_preset(CONFIG, name)
    assert changed == dataclasses.replace(
      CONFIG, name=name, algorithm=entry(PRESETS[name], epochs=2, minibatches=2)
    )
  # Another config has none, and then it is the preset's.
  assert with_preset(gsm8k.get_config(), "ppo").algorithm == entry(algorithms.ppo)
  assert with_preset(gsm8k.get_config(), "ppo").name == "gsm8k"
  made = dataclasses.replace(CONFIG, algorithm=algorithms.grpo(epochs=3))
  assert with_preset(made, "ppo").algorithm == entry(algorithms.ppo, epochs=3)
  with pytest.raises(UserError, match="--algorithm is 'x'; allowed are reinforce, rloo"):
    with_preset(CONFIG, "x")


def test_sentences_may_span_lines():
  def function(width, depth):
    """Does something.

    Args:
      width: how wide it is,
        in meters.
      depth: how deep it is. Either: `a`, or
        `b: c`.

    Returns:
      a: nothing.
    """

  width, depth = "how wide it is, in meters.", "how deep it is. Either: `a`, or `b: c`."
  assert docstring_items(function) == {"width": width, "depth": depth}
  assert docstring_items(None) == {}


@pytest.mark.parametrize(
  ("program", "flags"),
  [
    ("train", ["config", "config.sampling.group_size", "loggers", "workdir"]),
    ("train_reward", ["config", "config.data.digits", "loggers", "workdir"]),
    ("compare", ["presets", "workdir"]),
    ("evaluate", ["config", "samples", "workdir"]),
    ("sample", ["workdir"]),
    ("solve_rates", ["output", "workdir"]),
    ("prepare_gsm8k", ["data_dir", "source"]),
    ("prepare_smollm2", ["gguf", "output"]),
    ("benchmarks.run", ["embed", "grid", "json", "peer_python", "peers", "skewed"]),
  ],
)
def test_help_lists_the_flags(call, program, flags):
  done = call(program, "--help")
  assert done.returncode in (0, 1) and "Traceback" not in done.stderr
  for flag in flags:
    assert f"  --{flag}" in done.stdout.replace("--[no]", "--")


@pytest.mark.parametrize("program", ["train", "study", "plan"])
def test_help_lists_the_settings_of_a_preset(call, program):
  done = call(program, "--algorithm=vapo", "--help")
  assert done.returncode in (0, 1) and "Traceback" not in done.stderr
  assert "--config.algorithm.alpha  (float, default 0.05)" in done.stdout
  assert "--config.algorithm.minibatches  (int, default 2)" in done.stdout
  assert "  --algorithm: Preset instead of the config's" in done.stdout
