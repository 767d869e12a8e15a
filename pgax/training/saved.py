"""Configurations as JSON and back: a function is written as its name."""

import dataclasses
import pkgutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pgax.data.preferences import Preferences
from pgax.data.task import Task
from pgax.errors import UserError
from pgax.runs.workdir import read_config
from pgax.settings import Entry, entry, made, settings_of
from pgax.training.build import build
from pgax.training.config import PreferenceConfig, RunConfig

_LAYOUT = "layout"
_VERSION = 2  # of the layout; the first one had no number
_FUNCTION, _CALLABLE = "function", "callable"


def to_json(config: RunConfig | PreferenceConfig) -> dict[str, Any]:
  """Converts a configuration to JSON values, for `config.json`.

  A function is written as `{"callable": "module:name"}`. An entry, and a value of a
  dataclass, is written as the name of its function under `function`, and its arguments.

  Args:
    config: the configuration, before `build` makes its entries.

  Returns:
    JSON values.

  Raises:
    UserError: if a value can't be written, or a function can't be imported by its name.
  """
  return {_LAYOUT: _VERSION, **_section(config, "config")}


def _section(value: Any, where: str) -> dict[str, Any]:
  """The fields of a dataclass; those of its sections are written without a type."""
  plain = {}
  for field in dataclasses.fields(value):
    item, name = getattr(value, field.name), f"{where}.{field.name}"
    is_section = dataclasses.is_dataclass(item) and type(item) is type(field.default)
    plain[field.name] = _section(item, name) if is_section else _plain(item, name)
  return plain


def _plain(value: Any, where: str) -> Any:
  match value:
    case Mapping() if all(isinstance(key, str) for key in value):
      return _items(value, where)
    case list() | tuple():  # as JSON reads it back
      return [_plain(x, f"{where}[{i}]") for i, x in enumerate(value)]
    case None | bool() | int() | float() | str():
      return value
  is_value = dataclasses.is_dataclass(value) and not isinstance(value, type)
  if is_value and not isinstance(value, Task | Preferences):
    function = value.function if isinstance(value, Entry) else type(value)
    return {_FUNCTION: _path(function, where), **_items(settings_of(value), where)}
  if not callable(value):
    raise UserError(
      f"{where} is a {type(value).__name__}, which can't be saved with the run. Give "
      "strings, numbers, tuples and mappings of them, and entry(function, argument=...) of "
      "the function that makes anything else"
    )
  return {_CALLABLE: _path(value, where)}


def _items(items: Mapping[str, Any], where: str) -> dict[str, Any]:
  for key in (_FUNCTION, _CALLABLE):
    if key in items:
      raise UserError(
        f"{where} has a setting {key!r}, which a saved configuration names functions by; "
        "give it another name"
      )
  return {key: _plain(x, f"{where}.{key}") for key, x in items.items()}


def _path(function: Callable, where: str) -> str:
  """Returns the `module:name` that another process can import a function by."""
  module = getattr(function, "__module__", None) or ""
  path = f"{module}:{getattr(function, '__qualname__', '')}"
  try:
    importable = _on_path(module) and pkgutil.resolve_name(path) is function
  except (ImportError, AttributeError, ValueError):
    importable = False
  if not importable:
    raise UserError(
      f"{where} is {function!r}, which a later command could not import. It must be a "
      "function at the top level of a module that can be imported, which a config file is "
      "not: put it into a file of its own in the folder that you start from, or give "
      "entry(function, argument=...) of the function that makes it"
    )
  return path


def _on_path(module: str) -> bool:
  """Returns whether other programs can import a module."""
  top = module.partition(".")[0]
  if top == "__main__":
    return False
  return any(finder.find_spec(top, None) for finder in sys.meta_path)


def from_json(saved: Mapping[str, Any]) -> RunConfig:
  """Reads a configuration that `to_json` wrote.

  Args:
    saved: JSON values.

  Returns:
    The configuration; everything that a function makes is an entry.

  Raises:
    UserError: if it has another layout, or names a function that can't be imported.
  """
  _check_version(saved, "the saved configuration")
  try:
    return _read_section(RunConfig, {x: y for x, y in saved.items() if x != _LAYOUT})
  except (KeyError, TypeError, AttributeError, ImportError, ValueError) as error:
    raise UserError(f"the saved configuration can't be used: {error}") from None


def _read_section(cls: type, saved: Mapping[str, Any]) -> Any:
  defaults = {field.name: field.default for field in dataclasses.fields(cls)}
  values = {}
  for name, value in saved.items():
    default = defaults.get(name)
    if dataclasses.is_dataclass(default) and _FUNCTION not in value:
      value = _read_section(type(default), value)
    else:
      value = _read(value)
    values[name] = value if cls is RunConfig else made(value)
  return cls(**values)


def _read(value: Any) -> Any:
  """Replaces the names of functions by the functions, and their arguments by entries."""
  if isinstance(value, list):
    return tuple(map(_read, value))
  if not isinstance(value, Mapping):
    return value
  if _CALLABLE in value:
    return pkgutil.resolve_name(value[_CALLABLE])
  values = {name: _read(item) for name, item in value.items() if name != _FUNCTION}
  if _FUNCTION not in value:
    return values
  return entry(pkgutil.resolve_name(value[_FUNCTION]), **values)


def record_of(config: RunConfig | PreferenceConfig) -> dict[str, Any]:
  """Returns a configuration as JSON values, empty if it can't be saved; see `to_json`."""
  try:
    return to_json(config)
  except UserError:
    return {}


def check_layout(workdir: Path, record: Mapping[str, Any]) -> None:
  """Rejects the folder of a run whose configuration has an earlier layout.

  Args:
    workdir: folder of a run; it need not exist.
    record: the configuration of the run that is about to start, as JSON values.

  Raises:
    UserError: if the run in the folder is from an earlier version.
  """
  saved = read_config(workdir)
  if saved and _LAYOUT in record:
    _check_version(saved, f"the run in {workdir}")


def _check_version(saved: Mapping[str, Any], what: str) -> None:
  if saved.get(_LAYOUT) != _VERSION:
    raise UserError(
      f"{what} is from an earlier version of pgax, whose runs can't be continued or "
      "evaluated. Train it again in another workdir"
    )


def saved_run(workdir: Path, with_task: bool = True) -> RunConfig:
  """Reads the configuration that a run was trained with.

  Args:
    workdir: folder of the run.
    with_task: whether to make its task, which may read files.

  Returns:
    A `RunConfig` whose parts are made; see `build`.

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
  return build(from_json(saved), with_task)
