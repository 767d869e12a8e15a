"""`--help`: every setting has a sentence, and every program has a help text."""

import runpy

import pytest

from experiments.config_files import CONFIGS
from experiments.settings import describe_settings, docstring_items, list_settings

# The default configs of `experiments.train` and `experiments.train_reward`.
DEFAULTS = ("grpo.py", "_preferences.py")


def default_config(name):
  return runpy.run_path(str(CONFIGS / name))["get_config"]()


@pytest.mark.parametrize("name", DEFAULTS)
def test_every_setting_has_a_sentence(name):
  settings = list(list_settings(default_config(name)))
  assert len(settings) > 30
  assert [setting for setting, _, _, sentence in settings if len(sentence) < 10] == []


def test_settings_are_listed_once_with_their_default():
  config = default_config("grpo.py")
  names = [name for name, *_ in list_settings(config)]
  assert len(names) == len(set(names))
  assert names.index("config.steps") < names.index("config.algorithm.clip_high")
  text = describe_settings(config)
  assert "  --config.steps  (int, default 40)\n      number of policy" in text
  assert "\n\n  --config.sampling.banned_tokens  (tuple, default ())" in text


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
