"""HumanEval's solutions and mutants of them, judged as plain execution judges them.

The data is not part of this repository: PGAX_HUMAN_EVAL is the path of the benchmark's
`HumanEval.jsonl.gz` or of the same file unpacked.
"""

import ast
import gzip
import json
import os
import subprocess
import sys

import pytest

from pgax.rewards.code import Code
from pgax.sandbox import Limits

PATH = os.environ.get("PGAX_HUMAN_EVAL", "")
CODE = Code(Limits(seconds=10.0))
pytestmark = [
  pytest.mark.slow,
  pytest.mark.skipif(not PATH, reason="PGAX_HUMAN_EVAL is not set"),
]
_SWAPS = {ast.Add: ast.Sub, ast.Lt: ast.LtE, ast.Gt: ast.Lt, ast.Eq: ast.NotEq}
_SWAPS |= {ast.Mult: ast.Add, ast.And: ast.Or}


def problems():
  with (gzip.open if PATH.endswith(".gz") else open)(PATH, "rt", encoding="utf-8") as file:
    return [json.loads(line) for line in file]


def mutants(code, count=2):
  """Returns versions of a program in which one operator or number differs."""
  found = []
  for index, node in enumerate(ast.walk(ast.parse(code))):
    tree = ast.parse(code)
    node = list(ast.walk(tree))[index]
    if hasattr(node, "op") and type(node.op) in _SWAPS:
      node.op = _SWAPS[type(node.op)]()
    elif isinstance(node, ast.Compare) and type(node.ops[0]) in _SWAPS:
      node.ops[0] = _SWAPS[type(node.ops[0])]()
    elif isinstance(node, ast.Constant) and type(node.value) is int:
      node.value += 1
    else:
      continue
    found.append(ast.unparse(tree))
  return found[-count:]


def passes_plainly(code, test):
  command = [sys.executable, "-I", "-c", f"{code}\n\n{test}"]
  try:
    return subprocess.run(command, capture_output=True, timeout=10).returncode == 0
  except subprocess.TimeoutExpired:
    return False


def test_solutions_and_mutants_are_judged_as_plain_execution_judges_them():
  wrong, count = [], 0
  for problem in problems():
    solution = problem["prompt"] + problem["canonical_solution"]
    test = f"{problem['test']}\n\ncheck({problem['entry_point']})"
    for code in (solution, *mutants(solution)):
      count += 1
      if CODE("", code, test)["accuracy"] != passes_plainly(code, test):
        wrong.append((problem["task_id"], code))
  assert count > 400 and not wrong, wrong
