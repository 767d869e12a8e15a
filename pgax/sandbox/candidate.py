"""The process that the tested code runs in: it answers calls, and sees no expected result.

Nothing here is trusted by anybody: the tested code can change all of it.
"""

import builtins
import operator
from typing import Any

from pgax.sandbox.channel import decode, encode, receive, send
from pgax.sandbox.operators import BINARY, COMPARISONS, UNARY

_BUILTINS = {
  **UNARY,
  **COMPARISONS,
  **BINARY,
  "bool": bool,
  "contains": operator.contains,
  "delattr": delattr,
  "delitem": operator.delitem,
  "enter": lambda manager: type(manager).__enter__(manager),
  "exit": lambda manager: type(manager).__exit__(manager, None, None, None),
  "getitem": operator.getitem,
  "iter": iter,
  "len": len,
  "next": next,
  "repr": repr,
  "setattr": setattr,
  "setitem": operator.setitem,
  "str": str,
}


def serve(code: str, requests: int, responses: int) -> None:
  """Runs the code, then answers requests until there are no more.

  Args:
    code: the source.
    requests: file descriptor to read requests from.
    responses: file descriptor to write answers to.
  """
  namespace: dict[str, Any] = {"__name__": "solution"}
  objects: list[Any] = []

  def refer(value: Any) -> int:
    objects.append(value)
    return len(objects) - 1

  def answer(request: dict) -> dict:
    if request["op"] == "load":
      exec(compile(code, "<solution>", "exec"), namespace)
      return {"names": [name for name in namespace if isinstance(name, str)]}
    if request["op"] == "global":
      return {"value": encode(namespace[request["name"]], refer)}
    target = objects[request["target"]]
    args = decode(request["args"], objects.__getitem__)
    kwargs = decode(request["kwargs"], objects.__getitem__)
    match request["op"]:
      case "attribute":
        result = getattr(target, *args)
      case "builtin":
        result = _BUILTINS[request["name"]](target, *args)
      case _:
        result = target(*args, **kwargs)
    # The arguments too: they may have been changed in place.
    changed = {"args": encode(args, refer), "kwargs": encode(kwargs, refer)}
    return {"value": encode(result, refer)} | changed

  while True:
    request = receive(requests)
    try:
      told = answer(request)
    except BaseException as error:
      told = {"error": _describe(error)}
    send(responses, told)


def _describe(error: BaseException) -> list[str]:
  """The nearest builtin class of an exception, and its text."""
  known = [kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins"]
  kinds = [name for name in known if hasattr(builtins, name)]
  try:
    return [kinds[0], str(error)[:500]]
  except BaseException:
    return [kinds[0], ""]
