"""Exchanges plain data between processes that do not trust each other, as JSON.

Decoded values consist of builtin types and of a few of the standard library's. An object of
a class that the tested code defines arrives as a reference or not at all, so the process
that judges results never calls methods which that code overrides, such as `__eq__`. Pickle
would not guarantee this.

This file and the programs of the sandbox run in a bare interpreter and import only the
standard library.
"""

import json
import os
import struct
from collections.abc import Callable
from typing import Any

from pgax.sandbox.named import TYPES, encode_passed
from pgax.sandbox.standard import decode_standard, encode_standard

MAX_MESSAGE = 16 * 2**20
_HEADER = struct.Struct("!I")
# Not every JSON reader keeps larger integers exact, and their decimal form is slow.
_MAX_PLAIN_INT = 2**53
_SEQUENCES = {"tuple": tuple, "set": set, "frozenset": frozenset}
_PLAIN = {dict, tuple, set, frozenset, bytes, bytearray, slice, range, complex}


class ChannelError(Exception):
  """The other process sent an invalid message or closed the connection."""


def encode(value: Any, refer: Callable[[Any], int], of_test: bool = False) -> Any:
  """Encodes a value as JSON values.

  Args:
    value: any object. An instance of a subclass of a builtin or standard type is encoded
      as that type.
    refer: returns a reference number for an object that is not plain data, or raises.
    of_test: whether a test passes the value, so that functions of the standard library
      are encoded as their names and iterators as their items.

  Returns:
    JSON values.
  """

  def each(items: Any) -> list:
    return [encode(item, refer, of_test) for item in items]

  if value is None or value is True or value is False:
    return value
  if isinstance(value, str):
    return str.__str__(value)
  if isinstance(value, int):
    number = int(value)
    return number if -_MAX_PLAIN_INT < number < _MAX_PLAIN_INT else {"int": hex(number)}
  if isinstance(value, float):
    return float(value)
  if isinstance(value, list):
    return each(list.__iter__(value))
  standard = None if type(value) in _PLAIN else encode_standard(value, each)
  if standard is not None:
    return standard
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
  if isinstance(value, type) and TYPES.get(value.__name__) is value:
    return {"type": value.__name__}
  if of_test and (passed := encode_passed(value, each)):
    return passed
  return {"reference": refer(value)}


def decode(
  value: Any,
  resolve: Callable[[int], Any],
  function: Callable[[str, str], Any] | None = None,
) -> Any:
  """Decodes JSON values that `encode` returned.

  Args:
    value: JSON values. They need not be valid.
    resolve: returns the object for a reference number.
    function: returns the function for the names of a module and of the function; None if
      functions and iterators are not allowed.

  Returns:
    A value of builtin and standard types and of objects that `resolve` returned.

  Raises:
    ChannelError: if `encode` cannot have returned these JSON values.
  """

  def each(items: Any) -> list:
    return [decode(item, resolve, function) for item in items]

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
        return dict(map(each, inner))
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
      case "type":
        return TYPES[inner]
      case "iterator" if function:
        return iter(each(inner))
      case "function" if function:
        return function(*inner)
      case "reference":
        return resolve(int(inner))
    return decode_standard(name, inner, each)
  except (TypeError, ValueError, ArithmeticError, AttributeError, LookupError) as error:
    raise ChannelError(f"not plain data: {error}") from None


def send(fd: int, message: Any) -> None:
  """Writes a message.

  Args:
    fd: file descriptor.
    message: JSON values.

  Raises:
    ValueError: if the message exceeds `MAX_MESSAGE` bytes.
  """
  data = json.dumps(message).encode()
  if len(data) > MAX_MESSAGE:
    raise ValueError(f"a message has {len(data)} bytes; the limit is {MAX_MESSAGE}")
  data = memoryview(_HEADER.pack(len(data)) + data)
  while data:
    data = data[os.write(fd, data) :]


def receive(fd: int) -> Any:
  """Reads a message.

  Args:
    fd: file descriptor.

  Returns:
    JSON values.

  Raises:
    ChannelError: if the connection is closed or the message is invalid.
  """
  (size,) = _HEADER.unpack(_read(fd, _HEADER.size))
  if size > MAX_MESSAGE:
    raise ChannelError(f"a message has {size} bytes; the limit is {MAX_MESSAGE}")
  try:
    return json.loads(_read(fd, size))
  except (ValueError, RecursionError) as error:
    raise ChannelError(f"not a message: {error}") from None


def _read(fd: int, size: int) -> bytes:
  data = bytearray()
  while len(data) < size:
    chunk = os.read(fd, min(size - len(data), 2**16))
    if not chunk:
      raise ChannelError("the other process has ended")
    data += chunk
  return bytes(data)
