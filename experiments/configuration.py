"""Where ml_collections ends: config dicts to frozen dataclasses.

A part of a config that is made by a function, such as the algorithm or the task, is an
*entry*: the function itself under the name `function`, and its arguments beside it. No
name is looked up in a registry, and every argument can be set on the command line. A
reward is a function as it is, or an entry that makes one, and entries may stand in entries.
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
from pgax.models import DecoderConfig, hf
from pgax.training import PreferenceConfig, RunConfig, UserError
from pgax.training.workdir import read_config
from pgax.types import Example

# What the command line can set in the place of None.
_SETTABLE = (bool, int, float, str)


def entry(function: Callable, /, **arguments: Any) -> ConfigDict:
  """A function with all of its arguments, as a config.

  Args:
    function: makes a part of the run, such as `algorithms.grpo`.
    **arguments: those that differ from the function's defaults.

  Returns:
    A `ConfigDict` of the function and its arguments.

  Raises:
    TypeError: if the function has no such argument, or one without a value.
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
  """A dataclass as the entry of its class, so that its fields can be set and saved too."""
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
) -> ConfigDict:
  """The config of a run with default settings.

  Args:
    name: of the run.
    task: entry of the task.
    reward: the reward function, or the entry of one, such as `entry(rewards.Math)`.
    algorithm: entry of the algorithm, or the algorithm itself.

  Returns:
    A `ConfigDict` with a field for each of `pgax.training.RunConfig`.
  """
  config = ConfigDict({"name": name})
  config.task = task
  config.reward, config.algorithm = _as_config(reward), _as_config(algorithm)
  return _with_defaults(config, RunConfig)


def preference_config(name: str, data: ConfigDict) -> ConfigDict:
  """The config of a reward model's training with default settings.

  Args:
    name: of the run.
    data: entry of the pairs, such as `entry(preference_files, train_path=...)`.

  Returns:
    A `ConfigDict` with a field for each of `pgax.training.PreferenceConfig`.
  """
  return _with_defaults(ConfigDict({"name": name, "data": data}), PreferenceConfig)


def _with_defaults(config: ConfigDict, cls: type) -> ConfigDict:
  for field in dataclasses.fields(cls):
    if field.default is not dataclasses.MISSING:
      if field.name == "model_path":
        continue  # it is `model.path` here, beside what it stands for
      plain = field.default
      if dataclasses.is_dataclass(plain):
        plain = ConfigDict(dataclasses.asdict(plain))
      config[field.name] = plain
  config.model.path = ""
  return config


# Stands where a checkpoint is used without the problems that it was trained on.
_NO_TASK = Task([Example("", "")], [Example("", "")])


def freeze(config: ConfigDict, with_task: bool = True) -> RunConfig:
  """A config as the frozen dataclass that pgax works with.

  Args:
    config: from a config file, with or without overrides.
    with_task: whether to make the task, which may read files.

  Returns:
    A `RunConfig`.

  Raises:
    UserError: for an unknown key, a missing one or a bad value; it names what is allowed.
  """
  return _frozen(config.to_dict() | ({} if with_task else {"task": _NO_TASK}), RunConfig)


def freeze_preferences(config: ConfigDict) -> PreferenceConfig:
  """As `freeze`, for the config of a reward model's training."""
  return _frozen(config.to_dict(), PreferenceConfig)


def _frozen(plain: Mapping[str, Any], cls: type) -> Any:
  try:
    values = {name: _made(value, name) for name, value in plain.items()}
    values["model"], values["model_path"] = _model(
      values.get("model", {}), _default(cls, "model")
    )
    return _build(cls, values, "config")
  except OSError as error:
    raise UserError(f"{error.filename} can't be read: {error.strerror}") from None
  except (TypeError, ValueError) as error:
    raise UserError(str(error)) from None


def _made(value: Any, where: str) -> Any:
  """A value of a config with every entry in it, however deep, replaced by what it makes."""
  if isinstance(value, ConfigDict):  # one that stands in a tuple
    value = value.to_dict()
  if isinstance(value, list | tuple):  # lists where they come from JSON
    return tuple(_made(item, f"{where}[{i}]") for i, item in enumerate(value))
  if not isinstance(value, Mapping):
    return value
  arguments = {name: _made(item, f"{where}.{name}") for name, item in value.items()}
  if FUNCTION not in arguments:
    return arguments
  function = arguments.pop(FUNCTION)
  _check_names(arguments, inspect.signature(function).parameters, f"config.{where}")
  return function(**arguments)


def _default(cls: type, name: str) -> Any:
  (found,) = (field.default for field in dataclasses.fields(cls) if field.name == name)
  return found


def _model(
  values: Mapping[str, Any], without: DecoderConfig
) -> tuple[Mapping[str, Any] | DecoderConfig, str]:
  """The decoder's settings, and the directory that they and the weights are read from.

  With a directory only what no file says can be set: how to compute.
  """
  settings = dict(values)
  path = settings.pop("path", "")
  if not path:
    return settings, ""
  default = dataclasses.asdict(without)
  free = {name: settings.pop(name) for name in ("dtype", "remat") if name in settings}
  for name, value in settings.items():
    value = tuple(value) if isinstance(value, list) else value
    if name in default and value != default[name]:
      raise UserError(
        f"config.model.{name} is {value!r} and config.model.path is {path!r}; the "
        "directory decides it. Beside a path only dtype and remat can be set"
      )
  _check_names(settings, default, "config.model")
  return dataclasses.replace(hf.load_config(Path(path)), **free), path


def _build(cls: type, values: Mapping[str, Any], where: str) -> Any:
  fields = {field.name: field for field in dataclasses.fields(cls)}
  _check_names(values, fields, where)
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


def _check_names(given: Mapping, allowed: Mapping, where: str) -> None:
  for name in given:
    if name not in allowed:
      raise UserError(
        f"{where} has no key {name!r}; allowed are {', '.join(sorted(allowed))}"
      )


def saved_run(workdir: Path, with_task: bool = True) -> RunConfig:
  """The configuration that a run was trained with.

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
      "the configuration, so only a program that has it can go on from there"
    )
  return freeze(from_json(saved), with_task)
