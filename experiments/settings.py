"""Settings of a configuration as text: types, parsing, and the list of `--help`."""

import ast
import collections.abc
import dataclasses
import inspect
import pkgutil
import re
import textwrap
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pgax.errors import UserError
from pgax.settings import Entry, setting_at, settings_of, with_settings

_WIDTH = 88
_SECTION = re.compile(r"^(?:Args|Attributes):\n((?: .*(?:\n|\Z)|\n)*)", re.MULTILINE)
_ITEM = re.compile(r"^  (\w+): ((?:.|\n(?!  \w+: )(?! {0,2}\S))*)", re.MULTILINE)
_TRUTH = {"True": True, "true": True, "False": False, "false": False}
_NAMES = {Callable: "module:name of a function"}


class Kind(typing.NamedTuple):
  """The type that the text of a setting is parsed as.

  Attributes:
    type: bool, int, float, str, tuple, or `Callable` for a function.
    item: type of the items of a tuple; None for any.
    optional: whether the setting may be None.
  """

  type: Any
  item: Any = None
  optional: bool = False

  def __str__(self) -> str:
    return _NAMES.get(self.type) or self.type.__name__


def setting_path(name: str) -> str:
  """Returns the path of a setting by the name of its flag, without `config`."""
  return "model_path" if name == "model.path" else name


def setting_kind(config: Any, path: str) -> Kind | None:
  """Returns the type that a setting is parsed as; None if it is no text.

  Args:
    config: configuration of a run.
    path: dotted path of the setting.

  Raises:
    UserError: if there is no such setting, with those that there are.
  """
  value = setting_at(config, path)
  outer, _, key = path.rpartition(".")
  owner = setting_at(config, outer) if outer else config
  return _kind(_annotations(owner).get(key), value)


def with_texts(config: Any, texts: Mapping[str, str]) -> Any:
  """Returns a configuration with settings that are given as text.

  Args:
    config: configuration of a run.
    texts: texts by the names of flags, without `config`, such as `{"steps": "4"}`.

  Returns:
    The changed configuration.

  Raises:
    UserError: if there is no such setting, or one is rejected.
  """
  settings = {}
  for name, text in texts.items():
    kind = setting_kind(config, path := setting_path(name))
    if kind is None:
      raise UserError(f"config.{name} can't be given as text")
    settings[path] = parse(f"--config.{name}", text, kind)
  try:
    return with_settings(config, settings) if settings else config
  except (TypeError, ValueError) as error:
    raise UserError(str(error)) from error


def parse(name: str, text: str, kind: Kind) -> Any:
  """Parses the text of a setting.

  Args:
    name: name in an error, such as `--config.steps`.
    text: the text.
    kind: type that the text is parsed as.

  Returns:
    The value.

  Raises:
    UserError: if the text is no such value.
  """
  if kind.optional and text == "None":
    return None
  try:
    if kind.type is bool:
      return _TRUTH[text]
    if kind.type is tuple:
      return _parse_tuple(text, kind.item)
    if kind.type is Callable:
      module, _, function = text.partition(":")
      return pkgutil.resolve_name(f"{module}:{function or '?'}")
    return kind.type(text)
  except (KeyError, ValueError, ImportError, AttributeError):
    raise UserError(f"{name}={text}; it must be of type {kind}") from None


def _parse_tuple(text: str, item: Any) -> tuple:
  """Parses `1, 2`, or words with commas between them."""
  try:
    values = ast.literal_eval(text)
  except (ValueError, SyntaxError):
    values = text.split(",") if text else ()
  values = tuple(values) if isinstance(values, list | tuple) else (values,)
  return tuple(map(item, values)) if item in (int, float, str) else values


def _annotations(owner: Any) -> Mapping[str, Any]:
  """Returns the types of the settings in a value, as far as they are annotated."""
  if isinstance(owner, Entry):
    try:
      signature = inspect.signature(owner.function, eval_str=True)
    except NameError:  # a type that is imported for type checkers alone
      return {}
    return {name: x.annotation for name, x in signature.parameters.items()}
  if dataclasses.is_dataclass(owner):
    return {field.name: field.type for field in dataclasses.fields(owner)}
  return {}


def _kind(annotation: Any, value: Any) -> Kind | None:
  is_union = isinstance(annotation, types.UnionType)
  is_union |= typing.get_origin(annotation) is typing.Union
  options = typing.get_args(annotation) if is_union else (annotation,)
  optional = types.NoneType in options
  for option in (*options, type(value)):
    origin, inner = typing.get_origin(option) or option, typing.get_args(option)
    if origin is typing.Literal:
      return Kind(type(inner[0]), optional=optional)
    if origin in (bool, int, float, str, tuple):
      return Kind(origin, inner[0] if inner else None, optional)
    if origin is collections.abc.Callable or getattr(origin, "_is_protocol", False):
      return Kind(Callable, optional=optional)
  return None


def describe_settings(config: Any) -> str:
  """Lists every setting that the command line can change.

  The sentences are those of the docstrings of dataclasses and functions.

  Args:
    config: configuration of a run.

  Returns:
    A text with an entry for each setting, first those of the run itself and then section
    by section.
  """
  lines = ["Settings (--config.NAME=VALUE):"]
  section = "config"
  for name, kind, value, sentence in list_settings(config):
    if section != (section := ".".join(name.split(".")[:2])) and name != section:
      lines.append("")
    lines.append(f"  --{name}  ({kind}, default {_text(value)})")
    if sentence:
      lines.append(textwrap.indent(textwrap.fill(sentence, _WIDTH - 6), "      "))
  return "\n".join(lines) + "\n"


def _text(value: Any) -> str:
  if inspect.isroutine(value):
    return f"{value.__module__}:{value.__qualname__}"
  return repr(value)


def list_settings(
  value: Any, where: str = "config"
) -> Iterator[tuple[str, Kind, Any, str]]:
  """Lists the settings of a configuration, or of a part of one.

  Args:
    value: configuration of a run, or a part of it.
    where: its name.

  Yields:
    Name, type, default and sentence of each setting that the command line can change.
  """
  annotations = _annotations(value)
  sentences = docstring_items(value.function if isinstance(value, Entry) else type(value))
  settings = settings_of(value).items()
  for key, inner in settings:
    kind = _kind(annotations.get(key), inner)
    if kind and not settings_of(inner):
      yield f"{where}.{key}", kind, inner, sentences.get(key, "")
  for key, inner in settings:
    yield from list_settings(inner, f"{where}.{key}")


def docstring_items(function: Callable | None) -> dict[str, str]:
  """Reads the sentences of a docstring's `Args` or `Attributes`.

  Args:
    function: a function or class, or None for no docstring.

  Returns:
    The text of each item on one line, keyed by its name.
  """
  section = _SECTION.search(inspect.getdoc(function) or "") if function else None
  if not section:
    return {}
  return {
    match.group(1): " ".join(match.group(2).split())
    for match in _ITEM.finditer(section.group(1))
  }
