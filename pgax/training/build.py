"""Makes the parts of a configuration that functions and files decide."""

import dataclasses
from pathlib import Path
from typing import TypeVar

from pgax.data.task import Task
from pgax.errors import UserError
from pgax.models import DecoderConfig, hf
from pgax.settings import Entry, made, settings_of
from pgax.training.config import PreferenceConfig, RunConfig
from pgax.types import Example

_Config = TypeVar("_Config", RunConfig, PreferenceConfig)
# Placeholder for a checkpoint that is used without the problems it was trained on.
_NO_TASK = Task([Example("", "")], [Example("", "")])
# Settings of a model that the files of a directory do not have.
_FREE = ("dtype", "attention", "remat")


def build(config: _Config, with_task: bool = True) -> _Config:
  """Makes all parts of a configuration that are given as entries, or by a directory.

  Args:
    config: configuration of a run, or of a reward model's training. One that is made
      already stays as it is.
    with_task: whether to make the task of a run, which may read files.

  Returns:
    The configuration with values in place of entries, and the model of its `model_path`.

  Raises:
    UserError: if a function rejects its arguments, a file can't be read, or the model has
      settings that its directory decides.
  """
  if not with_task:
    config = dataclasses.replace(config, task=_NO_TASK)
  try:
    entries = {x: y for x, y in settings_of(config).items() if isinstance(y, Entry)}
    changes = {name: made(value) for name, value in entries.items()}
    if config.model_path:
      changes["model"] = _model(config)
    return dataclasses.replace(config, **changes)
  except OSError as error:
    raise UserError(f"{error.filename} can't be read: {error.strerror}") from None
  except (TypeError, ValueError) as error:
    raise UserError(str(error)) from error


def _model(config: RunConfig | PreferenceConfig) -> DecoderConfig:
  """The decoder of the directory, with the settings that can be chosen."""
  path, given = config.model_path, config.model
  loaded, default = hf.load_config(Path(path)), type(config).model
  for field in dataclasses.fields(DecoderConfig):
    name, value = field.name, getattr(given, field.name)
    known = getattr(default, name), getattr(loaded, name)
    if name not in _FREE and value not in known:
      raise UserError(
        f"config.model.{name} is {value!r} and config.model.path is {path!r}; the "
        "directory decides it. Beside a path only dtype, attention and remat can be set"
      )
  return dataclasses.replace(loaded, **{name: getattr(given, name) for name in _FREE})
