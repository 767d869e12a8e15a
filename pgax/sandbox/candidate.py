"""The process of the tested code, which answers calls and never receives expected results.

No other process trusts this one, because the tested code can modify all of it.
"""

import builtins
import collections
import json
import operator
import sys
import types
from typing import Any

from pgax.sandbox.channel import decode, encode, receive, send
from pgax.sandbox.named import named_function
from pgax.sandbox.operators import BINARY, COMPARISONS, UNARY

_BUILTINS = {
  **UNARY,
  **COMPARISONS,
  **BINARY,
  "bool": bool,
  "contains": operator.contains,
  "delattr": delattr,
  "delitem": operator.delitem,
  "content": lambda value: value,  # encoded as plain data if its class extends that
  "enter": lambda manager: type(manager).__enter__(manager),
  "exit": lambda manager: type(manager).__exit__(manager, None, None, None),
  "eq": operator.eq,
  "getitem": operator.getitem,
  "hash": hash,
  "isinstance": isinstance,
  "iter": iter,
  "len": len,
  "ne": operator.ne,
  "next": next,
  "repr": repr,
  "setattr": setattr,
  "setitem": operator.setitem,
  "str": str,
}


_NAME = "solution"
_MAX_TEXT = 500  # characters of the message of an exception


def serve(code: str, requests: int, responses: int) -> None:
  """Runs the code, then answers requests until the judge closes the connection.

  Args:
    code: source of the tested code.
    requests: file descriptor that requests are read from.
    responses: file descriptor that responses are written to.
  """
  module = types.ModuleType(_NAME)  # some of the standard library looks for it
  sys.modules[_NAME] = sys.modules["__main__"] = module
  namespace = vars(module)
  objects: list[Any] = []

  def refer(value: Any) -> int:
    objects.append(value)
    return len(objects) - 1

  def answer(request: dict) -> dict:
    if request["op"] == "load":
      exec(compile(code, "<solution>", "exec"), namespace)
      return {"names": [name for name in namespace if isinstance(name, str)]}
    if request["op"] == "global":
      value = namespace[request["name"]]
      return {"value": encode(value, refer), "class": isinstance(value, type)}
    target = objects[request["target"]]
    args = decode(request["args"], objects.__getitem__, named_function)
    kwargs = decode(request["kwargs"], objects.__getitem__, named_function)
    match request["op"]:
      case "attribute":
        result = getattr(target, *args)
      case "builtin":
        result = _BUILTINS[request["name"]](target, *args)
      case _:
        result = target(*args, **kwargs)
    # The call may have modified its arguments in place.
    arguments = {"args": encode(args, refer), "kwargs": encode(kwargs, refer)}
    if (same := _argument(result, args, kwargs)) is not None:
      return {"argument": same} | arguments
    if request["op"] == "create" and type(result).__module__ == _NAME:
      return {"value": {"reference": refer(result)}} | arguments
    return {"value": encode(result, refer)} | arguments

  while True:
    request = receive(requests)
    try:
      response = answer(request)
    except BaseException as error:
      response = {"error": _describe(error)}
    send(responses, response)


def _argument(result: Any, args: list, kwargs: dict) -> int | str | None:
  """Returns the position or the name of the argument that a call returned, if any did."""
  if type(result) not in (list, dict, set, bytearray, collections.deque):
    return None
  named = [*enumerate(args), *kwargs.items()]
  return next((name for name, value in named if value is result), None)


def _describe(error: BaseException) -> list:
  """Returns the nearest builtin class of an exception, its message and its arguments."""
  classes = [kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins"]
  names = [name for name in classes if hasattr(builtins, name)]
  try:
    text = str(error)[:_MAX_TEXT]
  except BaseException:
    text = ""
  try:
    args = encode(list(error.args), _refuse)
    return [names[0], text, args if len(json.dumps(args)) < 2 * _MAX_TEXT else None]
  except BaseException:
    return [names[0], text, None]


def _refuse(value: Any) -> int:
  raise TypeError(value)
