"""Proxies that represent the candidate's objects in the process of the tests."""

import _thread
import builtins
import collections
import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any, Literal

from pgax.sandbox.channel import ChannelError, decode, encode, receive, send
from pgax.sandbox.operators import BINARY, COMPARISONS, UNARY
from pgax.sandbox.standard import DATA_NAMES

# Origin of an object. The tests alone decide it, except that a
# "class" must be one for the candidate as well:
# - "class": a global that the tests use as a class; see `usage.classes`;
# - "object": an object that the test created from such a class, or computed from one;
# - "member": an attribute of the former two, or what calling a "member" returned;
# - "name": any other global that the test names, or an attribute of it;
# - "data": a method that plain data has too, of an object that is not an "object";
# - "": anything else that the candidate returned.
Origin = Literal["class", "object", "member", "name", "data", ""]
_MUTABLE = (list, dict, set, bytearray, collections.deque)
_TESTED = {"class", "object", "member"}


class GoneError(BaseException):
  """The candidate's process is unusable; no `except Exception` in a test hides this."""


class UnsupportedError(BaseException):
  """A test is at fault: it does something that does not work across processes."""


class Proxy:
  """An object of the candidate's process.

  What the tested code returns must be plain data wherever a value of the test decides
  between right and wrong: in `f(2) == 5`, `f(2) - 5 < 1`, `5 in f(2)` and
  `f(2).startswith("a")`, an object would receive the expected value and judge itself. Only
  objects that the test itself creates, from a class that the tests use as a class, receive
  such values, and even these are never compared with plain data.

  Any proxy supports calls, attributes, items, iteration, `with`, `len`, `bool` and
  conversion to text, which return what the test then compares.
  """

  __slots__ = ("_candidate", "_number", "_origin")

  def __init__(self, candidate: "Candidate", number: int, origin: Origin = ""):
    object.__setattr__(self, "_candidate", candidate)
    object.__setattr__(self, "_number", number)
    object.__setattr__(self, "_origin", origin)

  def __call__(self, *args: Any, **kwargs: Any) -> Any:
    if self._origin == "data" and (args or kwargs):
      raise TypeError("an object that the tested code returned is not plain data")
    create = self._origin == "class"
    origin = "object" if create else "member" if self._origin == "member" else ""
    op = "create" if create else "call"
    result = self._candidate.ask(op, self, args, kwargs, origin=origin)
    if self._origin == "data" and (type(result) is bool or type(result) is Proxy):
      raise TypeError("an object that the tested code returned is not plain data")
    return result

  def __getattr__(self, name: str) -> Any:
    if name.startswith("__") and name not in ("__name__", "__qualname__", "__dict__"):
      raise AttributeError(name)
    origin = "member" if self._origin in _TESTED else "name" if self._origin else ""
    if name in DATA_NAMES and self._origin in ("", "member", "data"):
      origin = "data"
    return self._candidate.ask("attribute", self, (name,), origin=origin)

  def __eq__(self, other: object) -> bool:
    if type(other) is Proxy:
      return self._comparable(other) and self._equals(other)
    if other is None:
      return False
    content = self._candidate.ask("builtin", self, name="content")
    if type(content) is Proxy:
      raise TypeError("an object of a class of the tested code can't be compared with data")
    return content == other

  def __ne__(self, other: object) -> bool:
    if type(other) is Proxy and self._comparable(other):
      return bool(self._candidate.ask("builtin", self, (other,), name="ne"))
    return not self == other

  def __hash__(self) -> int:
    if self._origin == "object":
      return self._candidate.ask("builtin", self, name="hash")
    return object.__hash__(self)

  def __instancecheck__(self, instance: object) -> bool:
    if self._origin != "class":
      raise TypeError("isinstance needs a class that the tests use as one")
    if type(instance) is not Proxy:
      return False
    return bool(self._candidate.ask("builtin", instance, (self,), name="isinstance"))

  def _comparable(self, other: "Proxy") -> bool:
    """Raises unless the test created at least one of two objects of tested classes."""
    origins = {self._origin, other._origin}
    if "object" not in origins or not origins <= _TESTED:
      raise TypeError("only objects that the test created can be compared")
    return True

  def _equals(self, other: "Proxy") -> bool:
    """Returns whether two objects are equal, and not equal to everything."""

    def ask(value: Any) -> bool:
      return bool(self._candidate.ask("builtin", self, (value,), name="eq"))

    if not ask(other):
      return False
    try:
      return not ask(os.urandom(16).hex())
    except Exception:  # it only compares itself with its own kind
      return True

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
    origins = {x._origin for x in other if type(x) is Proxy}
    # A comparison with plain data would reveal the expected value to the candidate.
    reveals = name in COMPARISONS and not origins
    if self._origin == "object" and origins <= _TESTED and not reveals:
      return self._candidate.ask("builtin", self, other, name=name, origin="object")
    # Not `NotImplemented`, which would pass in `assert f(2).__lt__(5)`.
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
    self._lock = _thread.allocate_lock()  # a test can have threads

  def exchange(self, request: dict) -> dict:
    """Sends a request and returns its response; raises exceptions of the candidate."""
    try:
      with self._lock:
        send(self._requests, request)
        response = receive(self._responses)
      if not isinstance(response, dict):
        raise ChannelError("a response must be an object")
      if "error" not in response:
        return response
      name, text, args = response["error"]
      name, text = str(name), str(text)
    except (ChannelError, OSError, TypeError, ValueError) as error:
      raise GoneError(str(error)) from None
    kind = getattr(builtins, name, None)
    usable = isinstance(kind, type) and issubclass(kind, Exception)
    if kind is StopIteration and request.get("name") != "next":
      usable = False  # it would end a `map` in the test early, and skip its checks
    raise self._exception(kind, text, args) if usable else Exception(f"{name}: {text}")

  def _exception(self, kind: type[Exception], text: str, encoded: Any) -> Exception:
    """Returns an exception with the candidate's arguments or else with its message."""
    args = self.value(encoded)
    for each in ([args] if type(args) is list else []) + [[text]]:
      with contextlib.suppress(Exception):
        exception = kind(*each)
        if str(exception).startswith(text):
          return exception
    return Exception(f"{kind.__name__}: {text}")

  def value(self, encoded: Any, origin: Origin = "") -> Any:
    """Decodes a value; `origin` applies to the value itself, "member" to its elements."""
    inner: Origin = "member" if origin == "member" else ""
    try:
      decoded = decode(encoded, lambda number: Proxy(self, number, inner))
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
    request["args"] = encode(list(args), number, of_test=True)
    request["kwargs"] = encode(kwargs, number, of_test=True)
    response = self.exchange(request)
    new = self.value(response.get("args"))
    for argument, new_argument in zip(args, new if type(new) is list else (), strict=False):
      _update(argument, new_argument)
    new = self.value(response.get("kwargs"))
    for key in set(kwargs) & set(new if type(new) is dict else ()):
      _update(kwargs[key], new[key])
    named = dict([*enumerate(args), *kwargs.items()])
    same = response.get("argument")
    if type(same) in (int, str) and type(named.get(same)) in _MUTABLE:
      return named[same]  # the argument itself, as after `x.sort(); return x`
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
  elif isinstance(argument, collections.deque):
    argument.clear()
    argument.extend(new)
