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
from typing import Any

from pgax.sandbox.proxy import Candidate, UnsupportedError


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
      with `passed`; or `unsupported`, if the test is at fault.
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
      except Exception:
        tell(passed=False)
  except UnsupportedError as error:
    tell(unsupported=str(error))
  except BaseException:  # that of loading too
    tell(passed=False)


def _run(candidate: Candidate, program: ast.Module, names: set[str]) -> None:
  namespace: dict[str, Any] = {"__name__": "tests"}
  used, modules = _names(program)
  for name in sorted(used & names):
    told = candidate.exchange({"op": "global", "name": name})
    # A capital letter is how a test says that it makes objects of a class.
    origin = "class" if name.lstrip("_")[:1].isupper() else "name"
    namespace[name] = candidate.value(told.get("value"), origin)
  for name in sorted(modules):
    namespace[name] = importlib.import_module(name)
  exec(compile(program, "<tests>", "exec"), namespace)
