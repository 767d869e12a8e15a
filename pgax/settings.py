"""Settings of nested values: functions with their arguments, and dotted paths."""

import copy
import dataclasses
import difflib
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from pgax.errors import UserError

_Value = TypeVar("_Value")


@dataclasses.dataclass(frozen=True)
class Entry:
  """A function together with all of its arguments, which are settings; see `entry`.

  Attributes:
    function: function that makes a part of a run, such as `algorithms.grpo`.
    arguments: names and values of its arguments; values may be entries.
  """

  function: Callable
  arguments: tuple[tuple[str, Any], ...]

  def __repr__(self) -> str:
    arguments = "".join(f", {name}={value!r}" for name, value in self.arguments)
    return f"entry({getattr(self.function, '__name__', self.function)}{arguments})"


def entry(function: Callable, /, **arguments: Any) -> Entry:
  """Describes a part of a run by the function that makes it.

  There is no registry of names: a function of any module can be an entry. All of its
  arguments are settings, which the command line can change.

  Args:
    function: function that makes a part of the run, such as `algorithms.grpo`.
    **arguments: arguments that differ from the function's defaults.

  Returns:
    An `Entry`.

  Raises:
    TypeError: if the function has no such argument, or an argument has no value.

  Example:
    >>> entry(algorithms.tpo, eta=0.5)
    entry(tpo, eta=0.5, epochs=4, minibatches=1)
  """
  signature = inspect.signature(function)
  bound = signature.bind(**arguments)
  bound.apply_defaults()
  named = {}
  for name, value in bound.arguments.items():
    match signature.parameters[name].kind:
      case inspect.Parameter.VAR_KEYWORD:
        named |= value
      case inspect.Parameter.VAR_POSITIONAL:
        pass  # all arguments have names
      case _:
        named[name] = value
  return Entry(function, tuple((x, _immutable(y)) for x, y in named.items()))


def _immutable(value: Any) -> Any:
  return tuple(map(_immutable, value)) if isinstance(value, list | tuple) else value


def made(value: Any) -> Any:
  """Replaces entries in a value, at any depth, by the results of their functions."""
  if isinstance(value, Entry):
    return value.function(**{name: made(x) for name, x in value.arguments})
  if isinstance(value, tuple):
    return tuple(map(made, value))
  if isinstance(value, Mapping):
    return {key: made(x) for key, x in value.items()}
  return value


def settings_of(value: Any) -> dict[str, Any]:
  """Returns the settings in a value by their names, none if it is a setting itself.

  They are the fields of a dataclass, the arguments of an entry, the values of a mapping, or
  the items of a tuple of such values.
  """
  if isinstance(value, Entry):
    return dict(value.arguments)
  if isinstance(value, Mapping):
    return dict(value)
  if isinstance(value, tuple):
    items = {str(index): item for index, item in enumerate(value)}
    return items if any(map(settings_of, value)) else {}
  if not dataclasses.is_dataclass(value) or isinstance(value, type):
    return {}
  fields = (field.name for field in dataclasses.fields(value) if field.init)
  return {name: getattr(value, name) for name in fields}


def setting_at(value: Any, path: str, where: str = "config") -> Any:
  """Returns the setting of a value at a dotted path.

  Args:
    value: value of nested settings; see `settings_of`.
    path: path such as `sampling.group_size`.
    where: name of the value in errors.

  Raises:
    UserError: if there is no such setting, with those that there are.
  """
  for key in path.split("."):
    settings = settings_of(value)
    if key not in settings:
      allowed = ", ".join(sorted(settings)) or "no keys"
      close = difflib.get_close_matches(key, settings, 1)
      hint = f". Did you mean {close[0]!r}?" if close else ""
      raise UserError(f"{where} has no key {key!r}; allowed are {allowed}{hint}")
    value, where = settings[key], f"{where}.{key}"
  return value


def with_settings(
  value: _Value,
  settings: Mapping[str, Any],
  where: str = "config",
  checked: bool = True,
) -> _Value:
  """Returns a value with other settings, all changed at once.

  Args:
    value: value of nested settings; see `settings_of`.
    settings: new values by dotted paths, such as `{"sampling.group_size": 4}`.
    where: name of the value in errors.
    checked: whether dataclasses check their new fields. Without it they are copied, for
      numbers that are traced.

  Returns:
    The changed value, of the same type.

  Raises:
    UserError: if there is no such setting.
    ValueError: if a dataclass rejects its new fields.
  """
  inner: dict[str, dict[str, Any]] = {}
  for path, setting in settings.items():
    key, _, rest = path.partition(".")
    inner.setdefault(key, {})[rest] = setting
  changes = {}
  for key, below in inner.items():
    child = below.pop("", setting_at(value, key, where))
    if below:
      child = with_settings(child, below, f"{where}.{key}", checked)
    changes[key] = child
  return _replaced(value, changes, checked)


def _replaced(value: Any, changes: Mapping[str, Any], checked: bool) -> Any:
  if isinstance(value, Entry):
    return entry(value.function, **(dict(value.arguments) | changes))
  if isinstance(value, Mapping):
    return {**value, **changes}
  if isinstance(value, tuple):
    return tuple(changes.get(str(index), item) for index, item in enumerate(value))
  if checked:
    return dataclasses.replace(value, **changes)
  changed = copy.copy(value)
  for name, setting in changes.items():
    object.__setattr__(changed, name, setting)
  return changed
