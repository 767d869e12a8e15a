"""The process that the tests run in: the tested code's functions are calls to another one.

No code of the candidate's runs here. A test that says `assert add(1, 2) == 3` sends the
arguments to the candidate's process, reads plain data back and compares it here; the
candidate sees neither the 3 nor the verdict, and can write neither.
"""

import ast
import builtins
import importlib
import importlib.util
import json
import os
import sys
from collections.abc import Iterator
from typing import Any

from pgax.rewards.code.channel import ChannelError, decode, encode, receive, send


class GoneError(BaseException):
  """The candidate's process is of no more use; no `except Exception` of a test hides it."""


class UnsupportedError(BaseException):
  """A test does what can't be done from another process: the test's fault."""


class Proxy:
  """An object of the candidate's process.

  It can be called, asked for attributes and items, iterated over, and turned into text. It
  can't be compared: whether two of its objects are equal, only the candidate could say.
  """

  __slots__ = ("_candidate", "_number")

  def __init__(self, candidate: "Candidate", number: int):
    object.__setattr__(self, "_candidate", candidate)
    object.__setattr__(self, "_number", number)

  def __call__(self, *args: Any, **kwargs: Any) -> Any:
    return self._candidate.ask("call", self, args, kwargs)

  def __getattr__(self, name: str) -> Any:
    if name.startswith("__"):
      raise AttributeError(name)
    return self._candidate.ask("attribute", self, (name,))

  def __eq__(self, other: object) -> bool:
    raise TypeError("an object of a class of the tested code can't be compared")

  __ne__ = __eq__
  __hash__ = object.__hash__

  def __setattr__(self, name: str, value: Any) -> None:
    self._candidate.ask("builtin", self, (name, value), name="setattr")

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

  def value(self, encoded: Any) -> Any:
    """What an answer stands for."""
    try:
      return decode(encoded, lambda number: Proxy(self, number))
    except (ChannelError, RecursionError) as error:
      raise GoneError(str(error)) from None

  def ask(
    self,
    op: str,
    target: Proxy,
    args: tuple = (),
    kwargs: dict | None = None,
    name: str = "",
  ) -> Any:
    """Something of an object of its own; see `candidate.serve`."""
    request = {"op": op, "target": target._number, "name": name}
    request |= {
      "args": encode(list(args), _number),
      "kwargs": encode(kwargs or {}, _number),
    }
    told = self.exchange(request)
    changed = self.value(told.get("args", []))
    changed = changed if isinstance(changed, list) else []
    for mine, theirs in zip(args, changed, strict=False):
      _update(mine, theirs)
    return self.value(told.get("value"))


def _number(value: Any) -> int:
  if type(value) is Proxy:
    return value._number
  raise UnsupportedError(
    f"a test gives a {type(value).__name__} to the tested code; it can give plain data only"
  )


def _update(mine: Any, theirs: Any) -> None:
  """Makes an argument what the candidate has made of it, if it can be changed in place."""
  if type(mine) is not type(theirs):
    return
  if isinstance(mine, (list, bytearray)):
    mine[:] = theirs
  elif isinstance(mine, (dict, set)):
    mine.clear()
    mine.update(theirs)


def _names(tree: ast.AST) -> tuple[set[str], set[str]]:
  """Names that a test uses, and those of them that mean modules of the standard library.

  Builtins are the real ones, and so is `math` in `math.isclose`: a candidate that defines
  its own does not get to judge itself.
  """
  nodes = list(ast.walk(tree))
  used = {node.id for node in nodes if isinstance(node, ast.Name)} - set(dir(builtins))
  owners = [node.value for node in nodes if isinstance(node, ast.Attribute)]
  dotted = {node.id for node in owners if isinstance(node, ast.Name)}
  modules = dotted & sys.stdlib_module_names
  return used - modules, modules


def _imports(tree: ast.AST) -> set[str]:
  """Top-level modules that a test imports."""
  nodes = list(ast.walk(tree))
  found = {a.name for node in nodes if isinstance(node, ast.Import) for a in node.names}
  found |= {n.module for n in nodes if isinstance(n, ast.ImportFrom) and n.module}
  return {name.partition(".")[0] for name in found}


def judge(tests: list[str], requests: int, responses: int, verdicts: int) -> None:
  """Runs tests one by one, and says of each how it went.

  Args:
    tests: sources; one that raises has failed.
    requests: file descriptor of what the candidate reads.
    responses: file descriptor of what it writes.
    verdicts: file descriptor to which a line is written after each test: a JSON object
      with `passed`, and `detail` if not; or `unsupported`, if the test is at fault.
  """

  def tell(**told: Any) -> None:
    os.write(verdicts, json.dumps(told).encode() + b"\n")

  candidate = Candidate(requests, responses)
  try:
    programs = [ast.parse(test) for test in tests]
  except (SyntaxError, ValueError) as error:
    tell(unsupported=f"a test is not valid Python: {error}")
    return
  imported = {name for program in programs for name in _imports(program)}
  for name in sorted(imported):
    if importlib.util.find_spec(name) is None:
      tell(unsupported=f"a test imports {name}, which is not there in the sandbox")
      return
  try:
    names = candidate.exchange({"op": "load"}).get("names")
    names = set(names) if isinstance(names, list) else set()
    for program in programs:
      try:
        _run(candidate, program, names)
        tell(passed=True)
      except Exception as error:
        tell(passed=False, detail=_text(error))
  except UnsupportedError as error:
    tell(unsupported=str(error))
  except BaseException as error:  # that of loading too
    tell(passed=False, detail=_text(error))


def _run(candidate: Candidate, program: ast.Module, names: set[str]) -> None:
  namespace: dict[str, Any] = {"__name__": "tests"}
  used, modules = _names(program)
  for name in sorted(used & names):
    told = candidate.exchange({"op": "global", "name": name})
    namespace[name] = candidate.value(told.get("value"))
  for name in sorted(modules):
    namespace[name] = importlib.import_module(name)
  exec(compile(program, "<tests>", "exec"), namespace)


def _text(error: BaseException) -> str:
  return f"{type(error).__name__}: {error}"[:500]
