"""Lists the settings of a config with type, default and meaning, for `--help`."""

import dataclasses
import inspect
import re
import textwrap
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ml_collections import ConfigDict

from experiments.saved_config import FUNCTION
from pgax.training import PreferenceConfig, RunConfig

_WIDTH = 88
_SECTION = re.compile(r"^(?:Args|Attributes):\n((?: .*(?:\n|\Z)|\n)*)", re.MULTILINE)
_ITEM = re.compile(r"^  (\w+): ((?:.|\n(?!  \w+: )(?! {0,2}\S))*)", re.MULTILINE)


def describe_settings(config: ConfigDict) -> str:
  """Lists every setting that the command line can change.

  The sentences are those of the docstrings of dataclasses and functions.

  Args:
    config: config of a run, from a config file.

  Returns:
    A text with an entry for each setting, first those of the run itself and then section
    by section.
  """
  lines = ["Settings (--config.NAME=VALUE):"]
  section = "config"
  for name, kind, value, sentence in list_settings(config):
    if section != (section := ".".join(name.split(".")[:2])) and name != section:
      lines.append("")
    lines.append(f"  --{name}  ({kind}, default {value!r})")
    if sentence:
      lines.append(textwrap.indent(textwrap.fill(sentence, _WIDTH - 6), "      "))
  return "\n".join(lines) + "\n"


def list_settings(config: ConfigDict) -> Iterator[tuple[str, str, Any, str]]:
  """Lists the settings of a config.

  Args:
    config: config of a run, from a config file.

  Yields:
    Name, type, default and sentence of each setting that the command line can change.
  """
  cls = RunConfig if "algorithm" in config else PreferenceConfig
  yield from _settings(config, cls, "config", {})


def _settings(
  config: ConfigDict, owner: Callable | None, where: str, outer: Mapping[str, str]
) -> Iterator[tuple[str, str, Any, str]]:
  """Lists the settings of a section; `outer` has the sentences of its parent."""
  sentences = docstring_items(owner)
  section = where.rpartition(".")[2]
  for key, value in sorted(config.items(), key=lambda item: _is_section(item[1])):
    name = f"{where}.{key}"
    if _is_section(value):
      yield from _settings(value, _owner(value, owner, key), name, sentences)
    elif key != FUNCTION and not callable(value):
      kind = config.get_type(key)
      if kind is not types.NoneType:
        # A config has `model.path` where a run has `model_path`.
        sentence = sentences.get(key) or outer.get(f"{section}_{key}", "")
        yield name, kind.__name__, value, sentence


def _is_section(value: Any) -> bool:
  return isinstance(value, ConfigDict)


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
