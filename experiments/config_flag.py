"""The flag `--config`: a file, `--config.key=value` for its settings, and `--algorithm`."""

import dataclasses
import inspect
from typing import TypeVar

from absl import flags

from experiments.config_files import read_config_file
from experiments.settings import describe_settings, setting_kind, setting_path, with_texts
from pgax.algorithms import presets
from pgax.errors import UserError
from pgax.settings import entry, settings_of
from pgax.training import PreferenceConfig, RunConfig

# `--help` lists the flags defined here among those of the program.
flags.disclaim_key_flags()
_Config = TypeVar("_Config", RunConfig, PreferenceConfig)
PRESETS = {preset.__name__: preset for preset in presets.ALL}
_SCHEDULE = {"epochs": 1, "minibatches": 1}


def with_preset(config: RunConfig, name: str) -> RunConfig:
  """Replaces the algorithm of a run by a preset with its default settings.

  The schedule of the configuration is kept where it has one: epochs or minibatches that are
  not the defaults of its own algorithm. A run that is named after its preset is renamed.

  Args:
    config: configuration of a run.
    name: name of a preset.

  Returns:
    The configuration with the entry of the preset.

  Raises:
    UserError: if there is no such preset.
  """
  if name not in PRESETS:
    raise UserError(f"--algorithm is {name!r}; allowed are {', '.join(PRESETS)}")
  function, given = getattr(config.algorithm, "function", None), config.algorithm
  parameters = inspect.signature(function).parameters if function else {}
  defaults = {
    x: parameters[x].default if x in parameters else y for x, y in _SCHEDULE.items()
  }
  settings = settings_of(given)
  kept = {x: settings.get(x, y) for x, y in defaults.items() if settings.get(x, y) != y}
  algorithm = entry(PRESETS[name], **kept)
  is_named = function is not None and config.name == function.__name__
  title = name if is_named else config.name
  return dataclasses.replace(config, name=title, algorithm=algorithm)


class ConfigFlag:
  """The flag `--config` of a program, with a flag for every setting that is given.

  Args:
    default: the config file if `--config` is not given, or None for no config.
    algorithm: whether there is a flag `--algorithm`.
    returns: type of the configuration that the file has to return.
  """

  def __init__(
    self, default: str | None, algorithm: bool = False, returns: type[_Config] = RunConfig
  ):
    self._default, self._returns, self._algorithm = default, returns, algorithm
    self._config: _Config | None = None
    self._overrides: list[str] = []
    flags.DEFINE_string(
      "config", default, "File whose get_config() returns the configuration."
    )
    if algorithm:
      flags.DEFINE_string(
        "algorithm", None, f"Preset instead of the config's: {', '.join(PRESETS)}."
      )

  def read(self, argv: list[str]) -> None:
    """Reads the file, and defines a flag for each setting that the arguments change.

    Args:
      argv: arguments of the program.

    Raises:
      UserError: if the file is bad, or there is no such setting.
    """
    given = _arguments(flags.FLAGS.read_flags_from_files(argv, force_gnu=False))
    names = [name.partition("config.")[2] for name in given if _is_setting(name)]
    path = given.get("config", self._default)
    if path is None:
      if names:
        raise UserError(f"--config.{names[0]} needs --config=FILE")
      return
    self._config = read_config_file(path, self._returns)()
    if self._algorithm and "algorithm" in given:
      self._config = with_preset(self._config, given["algorithm"])
    for name in dict.fromkeys(names):
      kind = setting_kind(self._config, setting_path(name))
      if kind is None:
        raise UserError(
          f"--config.{name} can't be set on the command line; copy {path} and edit it"
        )
      define = flags.DEFINE_boolean if kind.type is bool else flags.DEFINE_string
      define(f"config.{name}", None, "A setting of the configuration.")
      self._overrides.append(name)

  def describe(self) -> str:
    """Lists the settings of the configuration, for `--help`."""
    return "" if self._config is None else describe_settings(self._config)

  @property
  def value(self) -> _Config | None:
    """The configuration with the settings of the command line; None without a file.

    Raises:
      UserError: if a setting is rejected.
    """
    texts = {x: str(flags.FLAGS[f"config.{x}"].value) for x in self._overrides}
    return with_texts(self._config, texts)


def _arguments(argv: list[str]) -> dict[str, str]:
  """Returns the values of the flags among arguments, before absl knows all of them."""
  given = {}
  for argument, following in zip(argv[1:], [*argv[2:], ""], strict=False):
    if argument == "--":
      break
    if argument.startswith("-"):
      name, is_given, value = argument.lstrip("-").partition("=")
      given[name] = value if is_given else following
  return given


def _is_setting(name: str) -> bool:
  return name.startswith(("config.", "noconfig."))
