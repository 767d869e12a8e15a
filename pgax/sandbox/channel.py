"""Plain data between processes that do not trust each other: JSON, never pickle.

What is read back is made of builtin types alone, whatever was written: an object of a class
that the tested code defined comes over as a reference or not at all, so that methods which
it overrides, such as `__eq__`, are never called where its results are judged.

This file and the programs beside it run in a bare interpreter: the standard library only.
"""

import json
import os
import struct
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

MAX_MESSAGE = 16 * 2**20
_HEADER = struct.Struct("!I")
# Larger integers are not exact in every reader of JSON, and slow as decimals.
_SMALL = 2**53
_SEQUENCES = {"tuple": tuple, "set": set, "frozenset": frozenset}


class ChannelError(Exception):
  """The other side said something that it can't have said, or nothing more."""


def encode(value: Any, refer: Callable[[Any], int]) -> Any:
  """A value as JSON values.

  Args:
    value: any object; an instance of a subclass of a builtin counts as the builtin.
    refer: gives the number by which an object that is no plain data is referred to, or
      raises.

  Returns:
    JSON values.
  """

  def each(items: Any) -> list:
    return [encode(item, refer) for item in items]

  if value is None or value is True or value is False:
    return value
  if isinstance(value, str):
    return str.__str__(value)
  if isinstance(value, int):
    number = int(value)
    return number if -_SMALL < number < _SMALL else {"int": hex(number)}
  if isinstance(value, float):
    return float(value)
  if isinstance(value, list):
    return each(list.__iter__(value))
  if isinstance(value, dict):
    return {"dict": [each(pair) for pair in dict.items(value)]}
  for name, kind in _SEQUENCES.items():
    if isinstance(value, kind):
      return {name: each(kind.__iter__(value))}
  if isinstance(value, (bytes, bytearray)):
    return {type(value).__name__: bytes(value).hex()}
  if isinstance(value, slice):
    return {"slice": each((value.start, value.stop, value.step))}
  if isinstance(value, range):
    return {"range": [hex(x) for x in (value.start, value.stop, value.step)]}
  if isinstance(value, complex):
    return {"complex": [value.real, value.imag]}
  if isinstance(value, Fraction):
    return {"fraction": [hex(value.numerator), hex(value.denominator)]}
  if isinstance(value, Decimal):
    return {"decimal": str(value)}
  return {"reference": refer(value)}


def decode(value: Any, resolve: Callable[[int], Any]) -> Any:
  """The value that `encode` wrote.

  Args:
    value: JSON values, of whatever kind.
    resolve: gives what stands for the object of a number.

  Returns:
    Builtin types, and what `resolve` gave.

  Raises:
    ChannelError: if `encode` can't have written it.
  """

  def each(items: Any) -> list:
    return [decode(item, resolve) for item in items]

  if isinstance(value, list):
    return each(value)
  if not isinstance(value, dict):
    return value
  try:
    ((name, inner),) = value.items()
    match name:
      case "int":
        return int(inner, 16)
      case "dict":
        return {decode(k, resolve): decode(v, resolve) for k, v in inner}
      case "tuple" | "set" | "frozenset":
        return _SEQUENCES[name](each(inner))
      case "bytes":
        return bytes.fromhex(inner)
      case "bytearray":
        return bytearray.fromhex(inner)
      case "slice":
        start, stop, step = each(inner)
        return slice(start, stop, step)
      case "range":
        start, stop, step = (int(x, 16) for x in inner)
        return range(start, stop, step)
      case "complex":
        return complex(*inner)
      case "fraction":
        return Fraction(*(int(x, 16) for x in inner))
      case "decimal":
        return Decimal(inner)
      case "reference":
        return resolve(int(inner))
  except (TypeError, ValueError, ArithmeticError, AttributeError) as error:
    raise ChannelError(f"not plain data: {error}") from None
  raise ChannelError(f"no kind of plain data is called {name!r}")


def send(fd: int, message: Any) -> None:
  """Writes a message of JSON values.

  Raises:
    ValueError: if it is too large.
  """
  data = json.dumps(message).encode()
  if len(data) > MAX_MESSAGE:
    raise ValueError(f"a message of {len(data)} bytes; allowed are {MAX_MESSAGE}")
  data = memoryview(_HEADER.pack(len(data)) + data)
  while data:
    data = data[os.write(fd, data) :]


def receive(fd: int) -> Any:
  """Reads a message.

  Raises:
    ChannelError: if there is none, or something else.
  """
  (size,) = _HEADER.unpack(_read(fd, _HEADER.size))
  if size > MAX_MESSAGE:
    raise ChannelError(f"a message of {size} bytes; allowed are {MAX_MESSAGE}")
  try:
    return json.loads(_read(fd, size))
  except (ValueError, RecursionError) as error:
    raise ChannelError(f"not a message: {error}") from None


def _read(fd: int, size: int) -> bytes:
  data = bytearray()
  while len(data) < size:
    piece = os.read(fd, min(size - len(data), 2**16))
    if not piece:
      raise ChannelError("the other process has ended")
    data += piece
  return bytes(data)
