"""Encodes values of the standard library's types for the channel.

A value is taken apart in the process that sends it and built anew by the class of the
process that receives it, so that no method of the sender's comes along. A module that the
sender has not imported cannot be the type of its values, which saves importing it.
"""

import collections
import functools
import sys
from collections.abc import Callable
from typing import Any

_FACTORIES = {kind.__name__: kind for kind in (int, float, str, list, dict, set, tuple)}
_VIEWS = {type({}.keys()): "keys", type({}.values()): "values", type({}.items()): "items"}
_MAX_FIELDS = 256
# Module, class and attributes: values of the class have these and are built from them.
_RECORDS = {
  "datetime": ("datetime", "year month day hour minute second microsecond tzinfo fold"),
  "date": ("datetime", "year month day"),
  "time": ("datetime", "hour minute second microsecond tzinfo fold"),
  "timedelta": ("datetime", "days seconds microseconds"),
  "Fraction": ("fractions", "numerator denominator"),
}
_DATA = (str, bytes, bytearray, int, float, complex, list, tuple, dict, set, frozenset)
_DATA += (range, slice, memoryview, type({}.keys()), collections.Counter)
_DATA += (collections.OrderedDict, collections.defaultdict, collections.deque)
# Those of `decimal`, `fractions` and `datetime`, without importing them.
_OTHERS = "compare compare_total is_nan is_zero is_signed is_finite is_infinite quantize "
_OTHERS += "same_quantum max min limit_denominator strftime isoformat weekday astimezone"
# A test that uses one of these may mean an object of a type that is plain data.
DATA_NAMES = frozenset(name for kind in _DATA for name in dir(kind))
DATA_NAMES |= frozenset(_OTHERS.split())
Each = Callable[[Any], list]


def encode_standard(value: Any, each: Each) -> dict[str, list] | None:
  """Returns the name and the parts of a value of a type of the standard library.

  Args:
    value: any object. Of a subclass, only what the standard type has is encoded.
    each: encodes the elements of an iterable.

  Returns:
    A dictionary with one item; None for any other type.
  """
  if isinstance(value, dict):
    return _encode_dict(value, each)
  if isinstance(value, tuple):
    fields = getattr(type(value), "_fields", ())
    if fields and len(fields) == tuple.__len__(value):
      items = each(tuple.__iter__(value))
      return {"namedtuple": [type(value).__name__, list(map(str, fields)), items]}
    return None
  if kind := _VIEWS.get(type(value)):
    return {kind: each(value)}
  if isinstance(value, collections.deque):
    return {"deque": [each(collections.deque.__iter__(value)), value.maxlen]}
  for name, (module, attributes) in _RECORDS.items():
    kind = _imported(module, name)
    if kind and isinstance(value, kind):
      return {name: each(getattr(value, attribute) for attribute in attributes.split())}
  return _encode_other(value, each)


def _imported(module: str, name: str) -> type | None:
  return getattr(sys.modules.get(module), name, None)


def _encode_dict(value: dict, each: Each) -> dict[str, list] | None:
  pairs = [each(pair) for pair in dict.items(value)]
  for name in ("Counter", "OrderedDict", "defaultdict"):
    if isinstance(value, getattr(collections, name)):
      factory = getattr(value, "default_factory", None)
      known = _FACTORIES.get(getattr(factory, "__name__", "")) is factory
      return {name: [factory.__name__ if factory and known else None, pairs]}
  return None


def _encode_other(value: Any, each: Each) -> dict[str, list] | None:
  decimal, zone = _imported("decimal", "Decimal"), _imported("datetime", "timezone")
  array = _imported("array", "array")
  if decimal and isinstance(value, decimal):
    return {"Decimal": [decimal.__str__(value)]}
  if zone and isinstance(value, zone):
    return {"timezone": each([value.utcoffset(None)])}
  if array and isinstance(value, array):
    return {"array": [value.typecode, each(array.tolist(value))]}
  return None


def decode_standard(name: str, parts: list, each: Each) -> Any:
  """Builds a value from what `encode_standard` returned.

  Args:
    name: name of the type. The parts need not be valid.
    parts: encoded parts of the value.
    each: decodes the elements of a list.

  Returns:
    The value.

  Raises:
    ValueError: if there is no such type.
    TypeError, ArithmeticError, AttributeError: if the parts are invalid, as `ValueError`.
  """
  if name in _RECORDS:
    return _decode_record(name, each(parts))
  match name:
    case "Counter" | "OrderedDict":
      return getattr(collections, name)(dict(map(each, parts[1])))
    case "defaultdict":
      factory = None if parts[0] is None else _FACTORIES[parts[0]]
      return collections.defaultdict(factory, map(each, parts[1]))
    case "deque":
      return collections.deque(each(parts[0]), parts[1])
    case "namedtuple":
      return _decode_named_tuple(str(parts[0]), list(map(str, parts[1])), each(parts[2]))
    case "keys":
      return dict.fromkeys(each(parts)).keys()
    case "values":
      return dict(enumerate(each(parts))).values()
    case "items":
      return dict(each(parts)).items()
  return _decode_other(name, each(parts))


def _decode_record(name: str, parts: list) -> Any:
  module = __import__(_RECORDS[name][0])
  if name in ("datetime", "time"):
    return getattr(module, name)(*parts[:-1], fold=parts[-1])
  return getattr(module, name)(*parts)


def _decode_other(name: str, parts: list) -> Any:
  if name == "Decimal":
    from decimal import Decimal

    return Decimal(*parts)
  if name == "timezone":
    from datetime import timezone

    return timezone(*parts)
  if name == "array":
    from array import array

    return array(*parts)
  raise ValueError(f"{name!r} is not a kind of plain data")


def _decode_named_tuple(name: str, fields: list[str], values: list) -> tuple:
  # A field could pose as a method of plain data, such as `count`, and answer for itself.
  if any(map(callable, values)) and DATA_NAMES & set(fields):
    raise ValueError("a named tuple has an object for a method of plain data")
  return _named_tuple(name, tuple(fields))(*values)


@functools.cache
def _named_tuple(name: str, fields: tuple[str, ...]) -> type[tuple]:
  if len(fields) > _MAX_FIELDS:
    raise ValueError(f"a named tuple has {len(fields)} fields; at most {_MAX_FIELDS}")
  return collections.namedtuple(name, fields)
