"""Configs as JSON and back: a function is written as its name."""

import pkgutil
import sys
from collections.abc import Callable, Mapping
from typing import Any

from ml_collections import ConfigDict

from pgax.errors import UserError

# Key of the function in an entry; see `configuration`.
FUNCTION = "function"
_CALLABLE = "callable"
# Settings that are a function, not an entry of one.
_FUNCTIONS = ("reward", "step_reward")


def to_json(config: ConfigDict) -> dict[str, Any]:
  """Converts a config to JSON values.

  A function is written as `{"callable": "module:name"}`, or as `module:name` where only a
  function is allowed: as a reward, and as the function of an entry.

  Args:
    config: config of a run.

  Returns:
    JSON values.

  Raises:
    UserError: if a value can't be written, or a function can't be imported by its name.
  """
  return {
    name: _plain(value, f"config.{name}", name in _FUNCTIONS)
    for name, value in config.to_dict().items()
  }


def _plain(value: Any, where: str, bare: bool = False) -> Any:
  match value:
    case ConfigDict():  # inside a tuple
      return _plain(value.to_dict(), where)
    case Mapping() if all(isinstance(key, str) for key in value):
      return {k: _plain(x, f"{where}.{k}", k == FUNCTION) for k, x in value.items()}
    case list() | tuple():  # as JSON reads it back
      return [_plain(x, f"{where}[{i}]") for i, x in enumerate(value)]
    case None | bool() | int() | float() | str():
      return value
  if not callable(value):
    raise UserError(
      f"{where} is a {type(value).__name__}, which can't be saved with the run. Give "
      "strings, numbers, tuples and mappings of them, and entry(function, argument=...) of "
      "the function that makes anything else"
    )
  path = _path(value, where)
  return path if bare else {_CALLABLE: path}


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


def from_json(saved: Mapping[str, Any]) -> ConfigDict:
  """Reads a config that `to_json` wrote.

  Args:
    saved: JSON values.

  Returns:
    The config.

  Raises:
    UserError: if a function that it names can't be imported.
  """
  try:
    values = {name: _resolved(value) for name, value in saved.items()}
    for name in _FUNCTIONS:
      if isinstance(saved.get(name), str):
        values[name] = pkgutil.resolve_name(saved[name])
    for name in ("task", "algorithm"):
      if FUNCTION not in saved[name]:
        raise KeyError(f"{name}.{FUNCTION}")
  except (KeyError, TypeError, AttributeError, ImportError, ValueError) as error:
    raise UserError(f"the saved configuration can't be used: {error}") from None
  return ConfigDict(values)


def _resolved(value: Any) -> Any:
  """Replaces the names of functions in a saved value by the functions."""
  if isinstance(value, list):
    return tuple(map(_resolved, value))
  if not isinstance(value, Mapping):
    return value
  if _CALLABLE in value:
    return pkgutil.resolve_name(value[_CALLABLE])
  resolved = {name: _resolved(item) for name, item in value.items()}
  if FUNCTION in value:
    resolved[FUNCTION] = pkgutil.resolve_name(value[FUNCTION])
  return resolved
