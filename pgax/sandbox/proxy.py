"""Proxies that represent the candidate's objects in the process of the tests."""

import builtins
import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Literal

from pgax.sandbox.channel import ChannelError, decode, encode, receive, send
from pgax.sandbox.operators import BINARY, COMPARISONS, UNARY

# Origin of an object, which depends on the test alone and never on the candidate:
# - "name": a global that the test names, or an attribute of an object that has an origin;
# - "class": a global whose name is that of a class;
# - "object": an object that the test created by calling such a class;
# - "": anything else that the candidate returned.
Origin = Literal["name", "class", "object", ""]


class GoneError(BaseException):
  """The candidate's process is unusable; no `except Exception` in a test hides this."""


class UnsupportedError(BaseException):
  """A test is at fault: it does something that does not work across processes."""


class Proxy:
  """An object of the candidate's process.

  A proxy supports calls, attributes, items, iteration, `with` and conversion to text. It
  does not support equality, because only the candidate could decide whether two of its
  objects are equal. Operators work only on objects that the test itself created from a
  class, since only then are they what is tested. On an object that a function returned, as
  in `f(2) - 5` or `5 in f(2)`, they would reveal the expected value to the candidate, which
  could return whatever the test expects.
  """

  __slots__ = ("_candidate", "_number", "_origin")

  def __init__(self, candidate: "Candidate", number: int, origin: Origin = ""):
    object.__setattr__(self, "_candidate", candidate)
    object.__setattr__(self, "_number", number)
    object.__setattr__(self, "_origin", origin)

  def __call__(self, *args: Any, **kwargs: Any) -> Any:
    origin = "object" if self._origin == "class" else ""
    return self._candidate.ask("call", self, args, kwargs, origin=origin)

  def __getattr__(self, name: str) -> Any:
    if name.startswith("__"):
      raise AttributeError(name)
    origin = "name" if self._origin else ""
    return self._candidate.ask("attribute", self, (name,), origin=origin)

  def __eq__(self, other: object) -> bool:
    raise TypeError("an object of a class of the tested code can't be compared")

  __ne__ = __eq__
  __hash__ = object.__hash__

  def __setattr__(self, name: str, value: Any) -> None:
    self._candidate.ask("builtin", self, (name, value), name="setattr")

  def __delattr__(self, name: str) -> None:
    self._candidate.ask("builtin", self, (name,), name="delattr")

  def __bool__(self) -> bool:
    return self._candidate.ask("builtin", self, name="bool")

  def __len__(self) -> int:
    return self._candidate.ask("builtin", self, name="len")

  def __str__(self) -> str:
    return self._candidate.ask("builtin", self, name="str")

  def __repr__(self) -> str:
    return self._candidate.ask("builtin", self, name="repr")

  def __iter__(self) -> Iterator:
    iterator = self._candidate.ask("builtin", self, name="iter")
    return iterator if type(iterator) is Proxy else iter(iterator)

  def __next__(self) -> Any:
    return self._candidate.ask("builtin", self, name="next")

  def __getitem__(self, key: Any) -> Any:
    return self._candidate.ask("builtin", self, (key,), name="getitem")

  def __setitem__(self, key: Any, value: Any) -> None:
    self._candidate.ask("builtin", self, (key, value), name="setitem")

  def __delitem__(self, key: Any) -> None:
    self._candidate.ask("builtin", self, (key,), name="delitem")

  def __contains__(self, item: Any) -> bool:
    if self._origin == "object":
      return self._candidate.ask("builtin", self, (item,), name="contains")
    return item in (each for each in self)

  def __enter__(self) -> Any:
    return self._candidate.ask("builtin", self, name="enter")

  def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
    """Never suppresses or replaces an exception, which may come from an `assert`."""
    with contextlib.suppress(*([Exception] if kind else [])):
      self._candidate.ask("builtin", self, name="exit")


def _operator(name: str) -> Callable[..., Any]:
  def method(self: Proxy, *other: Any) -> Any:
    # A comparison with plain data would reveal the expected value to the candidate.
    reveals = name in COMPARISONS and type(other[0]) is not Proxy
    if self._origin == "object" and not reveals:
      return self._candidate.ask("builtin", self, other, name=name, origin="object")
    if other:
      return NotImplemented
    raise TypeError(f"{name} is not supported on an object that the tested code returned")

  return method


for _name in (*UNARY, *COMPARISONS, *BINARY):
  setattr(Proxy, f"__{_name.strip('_')}__", _operator(_name))


class Candidate:
  """The connection to the candidate's process.

  Args:
    requests: file descriptor that requests are written to.
    responses: file descriptor that responses are read from.
  """

  def __init__(self, requests: int, responses: int):
    self._requests, self._responses = requests, responses

  def exchange(self, request: dict) -> dict:
    """Sends a request and returns its response; raises exceptions of the candidate."""
    try:
      send(self._requests, request)
      response = receive(self._responses)
      if not isinstance(response, dict):
        raise ChannelError("a response must be an object")
      if "error" not in response:
        return response
      name, text = map(str, response["error"])
    except (ChannelError, OSError, TypeError, ValueError) as error:
      raise GoneError(str(error)) from None
    kind = getattr(builtins, name, None)
    usable = isinstance(kind, type) and issubclass(kind, Exception)
    if kind is StopIteration and request.get("name") != "next":
      usable = False  # it would end a `map` in the test early, and skip its checks
    try:
      exception = kind(text) if usable else Exception(f"{name}: {text}")
    except TypeError:  # Unicode errors take more arguments
      exception = Exception(f"{name}: {text}")
    raise exception

  def value(self, encoded: Any, origin: Origin = "") -> Any:
    """Decodes a value; `origin` applies to the value itself and not to its elements."""
    try:
      decoded = decode(encoded, lambda number: Proxy(self, number))
    except (ChannelError, RecursionError) as error:
      raise GoneError(str(error)) from None
    return Proxy(self, decoded._number, origin) if type(decoded) is Proxy else decoded

  def ask(
    self,
    op: str,
    target: Proxy,
    args: tuple = (),
    kwargs: dict | None = None,
    name: str = "",
    origin: Origin = "",
  ) -> Any:
    """Requests an operation on one of the candidate's objects.

    Args:
      op: kind of operation; see `candidate.serve`.
      target: object of the candidate.
      args: positional arguments. Lists, dictionaries, sets and byte arrays are updated in
        place as the candidate changed them.
      kwargs: keyword arguments, updated like `args`.
      name: name of the builtin, for builtin operations.
      origin: origin of the result.

    Returns:
      The result: plain data, or a proxy.
    """

    def number(value: Any) -> int:
      if type(value) is Proxy:
        return value._number
      # The class of an object that the candidate returned is not the test's fault.
      kind = UnsupportedError if target._origin else TypeError
      raise kind(
        f"a test passes a {type(value).__name__} to the tested code; only plain data can "
        "be passed"
      )

    kwargs = kwargs or {}
    request = {"op": op, "target": target._number, "name": name}
    request |= {"args": encode(list(args), number), "kwargs": encode(kwargs, number)}
    response = self.exchange(request)
    new = self.value(response.get("args"))
    for argument, new_argument in zip(args, new if type(new) is list else (), strict=False):
      _update(argument, new_argument)
    new = self.value(response.get("kwargs"))
    for key in set(kwargs) & set(new if type(new) is dict else ()):
      _update(kwargs[key], new[key])
    return self.value(response.get("value"), origin)


def _update(argument: Any, new: Any) -> None:
  """Updates an argument of a mutable type to its value in the candidate's process."""
  if type(argument) is not type(new):
    return
  if isinstance(argument, (list, bytearray)):
    argument[:] = new
  elif isinstance(argument, (dict, set)):
    argument.clear()
    argument.update(new)
