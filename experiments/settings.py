"""The settings of a config as a list: name, type, default and what it means."""

import dataclasses
import inspect
import re
import textwrap
import types
from collections.abc import Callable, Iterator
from typing import Any

from ml_collections import ConfigDict

from experiments.saved_config import FUNCTION
from pgax.training import PreferenceConfig, RunConfig

_WIDTH = 88
_SECTION = re.compile(r"^(?:Args|Attributes):\n((?:[ \n].*\n?)*)", re.MULTILINE)
_ITEM = re.compile(r"^  (\w+): ((?:.|\n(?!  \w+: )(?! {0,2}\S))*)", re.MULTILINE)


def describe_settings(config: ConfigDict) -> str:
  """Lists every setting that the command line can change.

  The sentences are those of the docstrings of dataclasses and functions.

  Args:
    config: config of a run, from a config file.

  Returns:
    A text with an entry for each setting.
  """
  cls = RunConfig if "algorithm" in config else PreferenceConfig
  lines = ["Settings (--config.NAME=VALUE):"]
  for name, kind, value, sentence in _settings(config, cls, "config"):
    lines.append(f"  --{name}  ({kind}, default {value!r})")
    if sentence:
      lines.append(textwrap.indent(textwrap.fill(sentence, _WIDTH - 6), "      "))
  return "\n".join(lines) + "\n"


def _settings(
  config: ConfigDict, owner: Callable | None, where: str
) -> Iterator[tuple[str, str, Any, str]]:
  """Name, type, default and sentence of each setting of a part of a config."""
  sentences = docstring_items(owner)
  for key, value in config.items():
    name = f"{where}.{key}"
    if isinstance(value, ConfigDict):
      yield from _settings(value, _owner(value, owner, key), name)
    elif key != FUNCTION and not callable(value):
      kind = config.get_type(key)
      if kind is not types.NoneType:
        yield name, kind.__name__, value, sentences.get(key, "")


def _owner(value: ConfigDict, owner: Callable | None, key: str) -> Callable | None:
  """The function of an entry, or the dataclass of a section."""
  if FUNCTION in value:
    return value[FUNCTION]
  if dataclasses.is_dataclass(owner):
    for field in dataclasses.fields(owner):
      if field.name == key:
        if dataclasses.is_dataclass(field.type):
          return field.type
        return type(field.default) if dataclasses.is_dataclass(field.default) else None
  return None


def docstring_items(function: Callable | None) -> dict[str, str]:
  """Reads the sentences of a docstring's `Args` or `Attributes`.

  Args:
    function: a function or class; None has no docstring.

  Returns:
    The text of each item by its name, on one line.
  """
  section = _SECTION.search(inspect.getdoc(function) or "") if function else None
  if not section:
    return {}
  return {
    match.group(1): " ".join(match.group(2).split())
    for match in _ITEM.finditer(section.group(1))
  }
