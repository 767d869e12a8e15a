"""Objects of the candidate's process, as they are in that of the tests."""

import builtins
import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Literal

from pgax.sandbox.channel import ChannelError, decode, encode, receive, send
from pgax.sandbox.operators import BINARY, COMPARISONS, UNARY

# Where an object is from, as the test says and not the candidate: a global that the test
# names, or an attribute of what is not empty here; a global with the name of a class; an
# object that the test made of that; and what the candidate gave back, which is empty.
Origin = Literal["name", "class", "object", ""]


class GoneError(BaseException):
  """The candidate's process is of no more use; no `except Exception` of a test hides it."""


class UnsupportedError(BaseException):
  """A test does what can't be done from another process: the test's fault."""


class Proxy:
  """An object of the candidate's process.

  It can be called, asked for attributes and items, iterated over, entered, and turned into
  text. It can't be compared for equality: whether two of its objects are equal, only the
  candidate could say. Its operators are asked for only where the test has made it of a
  class, so that they are what is tested: of what a function gave back, in `f(2) - 5` or
  `5 in f(2)`, they would be told the expected value, and say what the test wants to see.
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
    found = self._candidate.ask("builtin", self, name="iter")
    return found if type(found) is Proxy else iter(found)

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
    """Never keeps an exception back, which may be that of an `assert`, nor replaces it."""
    with contextlib.suppress(*([Exception] if kind else [])):
      self._candidate.ask("builtin", self, name="exit")


def _operator(name: str) -> Callable[..., Any]:
  def method(self: Proxy, *other: Any) -> Any:
    # A number or text that it is compared with would be told as the expected value is.
    told = name in COMPARISONS and type(other[0]) is not Proxy
    if self._origin == "object" and not told:
      return self._candidate.ask("builtin", self, other, name=name, origin="object")
    if other:
      return NotImplemented
    raise TypeError(f"{name} of what the tested code gave back")

  return method


for _name in (*UNARY, *COMPARISONS, *BINARY):
  setattr(Proxy, f"__{_name.strip('_')}__", _operator(_name))


class Candidate:
  """The other process.

  Args:
    requests: file descriptor to write to.
    responses: file descriptor to read from.
  """

  def __init__(self, requests: int, responses: int):
    self._requests, self._responses = requests, responses

  def exchange(self, request: dict) -> dict:
    """One request and its answer; exceptions of the candidate's are raised here."""
    try:
      send(self._requests, request)
      told = receive(self._responses)
      if not isinstance(told, dict):
        raise ChannelError("an answer is an object")
      if "error" not in told:
        return told
      name, text = map(str, told["error"])
    except (ChannelError, OSError, TypeError, ValueError) as error:
      raise GoneError(str(error)) from None
    kind = getattr(builtins, name, None)
    usable = isinstance(kind, type) and issubclass(kind, Exception)
    if kind is StopIteration and request.get("name") != "next":
      usable = False  # it would end a `map` of the test's early, and with it what it checks
    try:
      raised = kind(text) if usable else Exception(f"{name}: {text}")
    except TypeError:  # those of Unicode take more arguments
      raised = Exception(f"{name}: {text}")
    raise raised

  def value(self, encoded: Any, origin: Origin = "") -> Any:
    """What an answer stands for; `origin` is that of the whole, not of its parts."""
    try:
      found = decode(encoded, lambda number: Proxy(self, number))
    except (ChannelError, RecursionError) as error:
      raise GoneError(str(error)) from None
    return Proxy(self, found._number, origin) if type(found) is Proxy else found

  def ask(
    self,
    op: str,
    target: Proxy,
    args: tuple = (),
    kwargs: dict | None = None,
    name: str = "",
    origin: Origin = "",
  ) -> Any:
    """Something of an object of its own; see `candidate.serve`."""

    def number(value: Any) -> int:
      if type(value) is Proxy:
        return value._number
      # What the candidate gave back may be of any class, and is no fault of the test's.
      kind = UnsupportedError if target._origin else TypeError
      raise kind(
        f"a test gives a {type(value).__name__} to the tested code; it can give plain data "
        "only"
      )

    kwargs = kwargs or {}
    request = {"op": op, "target": target._number, "name": name}
    request |= {"args": encode(list(args), number), "kwargs": encode(kwargs, number)}
    told = self.exchange(request)
    changed = self.value(told.get("args"))
    for mine, theirs in zip(args, changed if type(changed) is list else (), strict=False):
      _update(mine, theirs)
    changed = self.value(told.get("kwargs"))
    for key in set(kwargs) & set(changed if type(changed) is dict else ()):
      _update(kwargs[key], changed[key])
    return self.value(told.get("value"), origin)


def _update(mine: Any, theirs: Any) -> None:
  """Makes an argument what the candidate has made of it, if it can be changed in place."""
  if type(mine) is not type(theirs):
    return
  if isinstance(mine, (list, bytearray)):
    mine[:] = theirs
  elif isinstance(mine, (dict, set)):
    mine.clear()
    mine.update(theirs)
