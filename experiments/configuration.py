"""Turns config dicts of ml_collections into frozen dataclasses.

A part of a config that is made by a function, such as the algorithm or the task, is an
*entry*: the function itself under the key `function`, together with its arguments. There is
no registry of names, and every argument can be set on the command line. A reward is a
function, or an entry that makes one. Entries may contain entries.
"""

import dataclasses
import inspect
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict, config_dict

from experiments.saved_config import FUNCTION, from_json
from pgax.algorithms import Algorithm
from pgax.data import Task
from pgax.errors import UserError
from pgax.models import DecoderConfig, hf
from pgax.runs.workdir import flatten, read_config
from pgax.training import PreferenceConfig, RunConfig
from pgax.training.renamed import (
  RENAMED_PREFERENCES,
  RENAMED_RUN,
  check_names,
  check_saved,
)
from pgax.types import Example

# The default decoder of configs: 0.1 M parameters, for the byte tokenizer.
SMALL_DECODER = DecoderConfig(
  vocab_size=259,
  num_layers=2,
  embed_dim=64,
  num_heads=4,
  num_kv_heads=2,
  head_dim=16,
  mlp_dim=192,
  dtype="auto",
)
# Classifiers of transformers do not scale embeddings.
SMALL_REWARD_MODEL = dataclasses.replace(SMALL_DECODER, scale_embeddings=False)
# Types that the command line can set instead of None.
_SETTABLE = (bool, int, float, str)


def entry(function: Callable, /, **arguments: Any) -> ConfigDict:
  """Makes a config of a function and all of its arguments.

  Args:
    function: function that makes a part of the run, such as `algorithms.grpo`.
    **arguments: arguments that differ from the function's defaults.

  Returns:
    A `ConfigDict` of the function and its arguments.

  Raises:
    TypeError: if the function has no such argument, or an argument has no value.
  """
  signature = inspect.signature(function)
  bound = signature.bind(**arguments)
  bound.apply_defaults()
  config = ConfigDict({FUNCTION: function})
  for name, value in bound.arguments.items():
    if value is None:  # keep its type, so that it can be set on the command line
      allowed = typing.get_args(signature.parameters[name].annotation)
      kinds = [kind for kind in allowed if kind in _SETTABLE]
      value = config_dict.placeholder(kinds[0]) if kinds else None
    config[name] = _as_config(value)
  return config


def _as_config(value: Any) -> Any:
  """Makes an entry of a dataclass, so that its fields can be set and saved too."""
  if isinstance(value, tuple | list):
    return tuple(map(_as_config, value))
  if isinstance(value, dict):
    return {key: _as_config(item) for key, item in value.items()}
  if not dataclasses.is_dataclass(value) or isinstance(value, type | Task):
    return value
  fields = (field.name for field in dataclasses.fields(value) if field.init)
  return entry(type(value), **{name: getattr(value, name) for name in fields})


def run_config(
  name: str,
  task: ConfigDict,
  reward: Callable | ConfigDict,
  algorithm: ConfigDict | Algorithm,
  model: DecoderConfig = SMALL_DECODER,
) -> ConfigDict:
  """Makes the config of a run with default settings.

  Args:
    name: name of the run.
    task: entry of the task.
    reward: the reward function, or the entry of one, such as `entry(rewards.Math)`.
    algorithm: entry of the algorithm, or the algorithm itself.
    model: configuration of the decoder, unless `model.path` is set.

  Returns:
    A `ConfigDict` with a key for each field of `pgax.training.RunConfig`.
  """
  config = ConfigDict({"name": name})
  config.task = task
  config.reward, config.algorithm = _as_config(reward), _as_config(algorithm)
  return _with_defaults(config, RunConfig, model)


def preference_config(
  name: str, data: ConfigDict, model: DecoderConfig = SMALL_REWARD_MODEL
) -> ConfigDict:
  """Makes the config of a reward model's training with default settings.

  Args:
    name: name of the run.
    data: entry of the pairs, such as `entry(preference_files, train_path=...)`.
    model: configuration of the decoder, unless `model.path` is set.

  Returns:
    A `ConfigDict` with a key for each field of `pgax.training.PreferenceConfig`.
  """
  config = ConfigDict({"name": name, "data": data})
  return _with_defaults(config, PreferenceConfig, model)


def _with_defaults(config: ConfigDict, cls: type, model: DecoderConfig) -> ConfigDict:
  for field in dataclasses.fields(cls):
    # In a config, the path of a model is `model.path`.
    if field.default is not dataclasses.MISSING and field.name != "model_path":
      default = field.default
      if dataclasses.is_dataclass(default):
        default = ConfigDict(dataclasses.asdict(default))
      config[field.name] = default
  config.model = ConfigDict(dataclasses.asdict(model) | {"path": ""})
  return config


# Placeholder for a checkpoint that is used without the problems it was trained on.
_NO_TASK = Task([Example("", "")], [Example("", "")])


def freeze(config: ConfigDict, with_task: bool = True) -> RunConfig:
  """Makes the frozen configuration of a run.

  Args:
    config: config from a file, with or without overrides.
    with_task: whether to make the task, which may read files.

  Returns:
    A `RunConfig`.

  Raises:
    UserError: if a key is unknown or missing, or a value is bad; with what is allowed.
  """
  task = {} if with_task else {"task": _NO_TASK}
  plain = config.to_dict() | task
  return _frozen(plain, RunConfig, RENAMED_RUN, SMALL_DECODER)


def freeze_preferences(config: ConfigDict) -> PreferenceConfig:
  """Makes the frozen configuration of a reward model's training; see `freeze`."""
  plain = config.to_dict()
  return _frozen(plain, PreferenceConfig, RENAMED_PREFERENCES, SMALL_REWARD_MODEL)


def _frozen(
  plain: Mapping[str, Any],
  cls: type,
  renamed: Mapping[str, str],
  small: DecoderConfig,
) -> Any:
  check_names(flatten(plain), renamed)
  try:
    values = {name: _made(value, name) for name, value in plain.items()}
    values["model"], values["model_path"] = _model(values.get("model", {}), small)
    return _build(cls, values, "config")
  except OSError as error:
    raise UserError(f"{error.filename} can't be read: {error.strerror}") from None
  except (TypeError, ValueError) as error:
    raise UserError(str(error)) from None


def _made(value: Any, where: str) -> Any:
  """Replaces every entry in a value, at any depth, by the result of its function."""
  if isinstance(value, ConfigDict):  # inside a tuple
    value = value.to_dict()
  if isinstance(value, list | tuple):  # a list if it comes from JSON
    return tuple(_made(item, f"{where}[{i}]") for i, item in enumerate(value))
  if not isinstance(value, Mapping):
    return value
  arguments = {name: _made(item, f"{where}.{name}") for name, item in value.items()}
  if FUNCTION not in arguments:
    return arguments
  function = arguments.pop(FUNCTION)
  _check_keys(arguments, inspect.signature(function).parameters, f"config.{where}")
  return function(**arguments)


def _model(values: Mapping[str, Any], small: DecoderConfig) -> tuple[DecoderConfig, str]:
  """Makes the decoder's settings, and returns the directory that they are read from.

  With a directory, only the settings that its files don't have can change: `dtype`,
  `attention` and `remat`.
  """
  settings = dict(values)
  path = settings.pop("path", "")
  if not path:
    return _build(DecoderConfig, settings, "config.model"), ""
  default = dataclasses.asdict(small)  # the values if nothing is set
  names = ("dtype", "attention", "remat")
  free = {name: settings.pop(name) for name in names if name in settings}
  for name, value in settings.items():
    value = tuple(value) if isinstance(value, list) else value
    if name in default and value != default[name]:
      raise UserError(
        f"config.model.{name} is {value!r} and config.model.path is {path!r}; the "
        "directory decides it. Beside a path only dtype, attention and remat can be set"
      )
  _check_keys(settings, default, "config.model")
  return dataclasses.replace(hf.load_config(Path(path)), **free), path


def _build(cls: type, values: Mapping[str, Any], where: str) -> Any:
  fields = {field.name: field for field in dataclasses.fields(cls)}
  _check_keys(values, fields, where)
  missing = [
    name
    for name, field in fields.items()
    if name not in values and field.default is dataclasses.MISSING
  ]
  if missing:
    raise UserError(f"{where} lacks {', '.join(missing)}")
  built = {}
  for name, value in values.items():
    default = fields[name].default
    if dataclasses.is_dataclass(default) and isinstance(value, Mapping):
      value = _build(type(default), value, f"{where}.{name}")
    built[name] = value
  return cls(**built)


def _check_keys(given: Mapping, allowed: Mapping, where: str) -> None:
  for name in given:
    if name not in allowed:
      raise UserError(
        f"{where} has no key {name!r}; allowed are {', '.join(sorted(allowed))}"
      )


def saved_run(workdir: Path, with_task: bool = True) -> RunConfig:
  """Reads the configuration that a run was trained with.

  Args:
    workdir: folder of the run.
    with_task: whether to make its task, which may read files.

  Returns:
    A `RunConfig`.

  Raises:
    UserError: if the folder holds no run, or one whose configuration can't be used.
  """
  saved = read_config(workdir)
  if saved is None:
    raise UserError(f"{workdir} has no config.json; give the folder of a run")
  if not saved:
    raise UserError(
      f"the config.json of {workdir} is empty: its run was started without a record of "
      "the configuration, so only the program that started it can use it"
    )
  check_saved(workdir, RENAMED_RUN)
  return freeze(from_json(saved), with_task)
