"""The process that runs the tests and calls the tested code in another process.

None of the candidate's code runs here. The test `assert add(1, 2) == 3` sends the arguments
to the candidate's process, reads plain data back and compares it here. The candidate can
neither read nor write the expected value and the verdict.
"""

import ast
import builtins
import importlib
import importlib.util
import json
import os
import sys
import types
from typing import Any

from pgax.sandbox.proxy import Candidate, UnsupportedError
from pgax.sandbox.usage import classes


def _names(tree: ast.AST) -> tuple[set[str], set[str]]:
  """Returns the names that a test takes from the candidate and from the standard library.

  Builtins are always the real ones, and so is `math` in `math.isclose`. Otherwise a
  candidate that defines its own could judge itself.
  """
  nodes = list(ast.walk(tree))
  used = {node.id for node in nodes if isinstance(node, ast.Name)} - set(dir(builtins))
  owners = [node.value for node in nodes if isinstance(node, ast.Attribute)]
  dotted = {node.id for node in owners if isinstance(node, ast.Name)}
  modules = dotted & sys.stdlib_module_names
  return {name for name in used - modules if not name.startswith("__")}, modules


def _imports(tree: ast.AST) -> set[str]:
  """Returns the top-level modules that a test imports."""
  nodes = list(ast.walk(tree))
  names = {a.name for node in nodes if isinstance(node, ast.Import) for a in node.names}
  names |= {n.module for n in nodes if isinstance(n, ast.ImportFrom) and n.module}
  return {name.partition(".")[0] for name in names}


def judge(tests: list[str], requests: int, responses: int, verdicts: int) -> None:
  """Runs tests one by one and reports the verdict of each.

  Args:
    tests: sources of the tests; a test that raises fails.
    requests: file descriptor that the candidate reads requests from.
    responses: file descriptor that the candidate writes responses to.
    verdicts: file descriptor for one line per test. Each line is a JSON object with
      `passed`, or with `unsupported` if the test itself is at fault.
  """

  def report(**verdict: Any) -> None:
    os.write(verdicts, json.dumps(verdict).encode() + b"\n")

  candidate = Candidate(requests, responses)
  try:
    programs = [ast.parse(test) for test in tests]
  except (SyntaxError, ValueError) as error:
    report(unsupported=f"a test is not valid Python: {error}")
    return
  imported = {name for program in programs for name in _imports(program)}
  for name in sorted(imported):
    if importlib.util.find_spec(name) is None:
      report(unsupported=f"a test imports {name}, which the sandbox does not have")
      return
  try:
    names = candidate.exchange({"op": "load"}).get("names")
    names = set(names) if isinstance(names, list) else set()
    tested = classes(programs)
    for program in programs:
      try:
        _run(candidate, program, names, tested)
        report(passed=True)
      except SystemExit as end:  # of the test, as `unittest.main()` ends it
        report(passed=type(end.code) in (int, bool, type(None)) and not end.code)
      except Exception:
        report(passed=False)
  except UnsupportedError as error:
    report(unsupported=str(error))
  except BaseException:  # including exceptions of loading the candidate
    report(passed=False)


def _run(
  candidate: Candidate, program: ast.Module, names: set[str], tested: set[str]
) -> None:
  # A test is a program, and all of it runs: also what it runs as the main module only.
  sys.modules["__main__"] = module = types.ModuleType("__main__")
  sys.argv, namespace = ["tests.py"], vars(module)
  used, modules = _names(program)
  for name in sorted(used & names):
    response = candidate.exchange({"op": "global", "name": name})
    # The tests use the name as that of a class, and the candidate says that it is one.
    origin = "class" if name in tested and response.get("class") is True else "name"
    namespace[name] = candidate.value(response.get("value"), origin)
  for name in sorted(modules):
    namespace[name] = importlib.import_module(name)
  exec(compile(program, "<tests>", "exec"), namespace)
