"""Builtin types, and functions of the standard library, which cross the channel by name.

Both processes have their own. A name in a result stands for a builtin type alone; anything
else would let the tested code choose what a test calls in the process that judges.
"""

import itertools
import sys
from collections.abc import Callable
from typing import Any

_TYPES = (bool, int, float, complex, str, bytes, bytearray, list, tuple, dict, set)
TYPES = {kind.__name__: kind for kind in (*_TYPES, frozenset, range, object, type(None))}


_EMPTY = ([], (), {}, set(), "", b"", range(0), (x for x in ()))
_ITERATORS = {type(iter(each)) for each in _EMPTY} | {
  type(reversed([])),
  type(reversed({})),
}
_ITERATORS |= {map, zip, enumerate, filter, reversed}
_MAX_ITEMS = 100_000


def encode_passed(value: Any, each: Callable[[Any], list]) -> dict[str, Any] | None:
  """Returns a function of the standard library, or an iterator, that a test passes.

  Args:
    value: any object. An iterator is used up, unless it has too many items.
    each: encodes the elements of an iterable.

  Returns:
    A dictionary with one item; None for anything else.
  """
  if type(value) in _ITERATORS or type(value).__module__ == "itertools":
    items = list(itertools.islice(value, _MAX_ITEMS + 1))
    return {"iterator": each(items)} if len(items) <= _MAX_ITEMS else None
  name = function_name(value) if callable(value) else None
  return {"function": name} if name else None


def function_name(value: Any) -> tuple[str, str] | None:
  """Returns the module and the name of a type or function of the standard library.

  Args:
    value: any object.

  Returns:
    What `named_function` finds the same object by; None if nothing does.
  """
  owner = getattr(value, "__objclass__", value)  # of a method such as `str.upper`
  module = getattr(owner, "__module__", None)
  name = getattr(value, "__qualname__", None)
  if not (isinstance(module, str) and isinstance(name, str)):
    return None
  if module.partition(".")[0] not in sys.stdlib_module_names | {"builtins"}:
    return None
  try:
    return (module, name) if named_function(module, name) is value else None
  except (ImportError, AttributeError):
    return None


def named_function(module: str, name: str) -> Any:
  """Returns a type or function.

  Args:
    module: name of a module.
    name: its name in the module, with a dot for a method.

  Returns:
    The object.

  Raises:
    ImportError, AttributeError: if there is none.
  """
  __import__(module)
  value = sys.modules[module]
  for part in name.split("."):
    value = getattr(value, part)
  return value
