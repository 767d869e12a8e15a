"""Finds which of the names in tests the tests use as classes.

The tests alone decide this. A candidate could define a class in place of a function, and
its instances would receive what `abs(f(2) - 5)` and `7 in f(2)` compare.
"""

import ast
import itertools
from collections.abc import Iterable

from pgax.sandbox.standard import DATA_NAMES

_IN_PLACE = {"sort", "reverse"}  # statements even if they are applied to a list


def classes(programs: Iterable[ast.Module]) -> set[str]:
  """Returns the names that tests use as classes.

  A name is that of a class if a test

  - reads an attribute of one of its objects that no plain data has, as in `Stack(2).top`;
  - reads an attribute of the name itself, or uses it in `isinstance`;
  - capitalizes the name, and calls it without arguments, or compares two of its objects, as
    in `V(1) < V(2)`, or calls a method of an object as a statement, as in `s.append(1)`.

  A capital letter alone shows nothing, and the candidate must define a class as well.

  Args:
    programs: the tests of a problem.

  Returns:
    A set of names.
  """
  found: set[str] = set()
  for program in programs:
    visitor = _Visitor(program)
    for node in ast.walk(program):
      found |= visitor.evidence(node)
    for name in visitor.aliases.keys() & found:
      found |= visitor.aliases[name]
  return found


class _Visitor:
  """The objects that the names of a test refer to.

  Attributes:
    aliases: parameters of the test's functions, with the names that are passed for them.
    objects: variables, with the names whose objects they may be.
  """

  def __init__(self, program: ast.Module):
    nodes = list(ast.walk(program))
    functions = {n.name: n.args.args for n in nodes if isinstance(n, ast.FunctionDef)}
    self.aliases: dict[str, set[str]] = {}
    self.objects: dict[str, set[str]] = {}
    for node in nodes:
      if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        for parameter, value in zip(
          functions.get(node.func.id, ()), node.args, strict=False
        ):
          if isinstance(value, ast.Name):
            self.aliases.setdefault(parameter.arg, set()).add(value.id)
      for target, value in _assignments(node):
        if isinstance(target, ast.Name):
          self.objects.setdefault(target.id, set()).update(self._made_by(value))

  def _made_by(self, node: ast.AST | None) -> set[str]:
    """Returns the names whose calls made the value of an expression."""
    match node:
      case ast.Call(func=ast.Name(id=name)):
        return {name}
      case ast.Name(id=name):
        return self.objects.get(name, set())
      case ast.UnaryOp(operand=operand):
        return self._made_by(operand)
      case ast.BinOp(left=left, right=right):
        return self._made_by(left) | self._made_by(right)
    return set()

  def evidence(self, node: ast.AST) -> set[str]:
    """Returns the names that a node of the tree shows to be classes."""
    match node:
      case ast.Attribute(value=ast.Name(id=name), attr=attribute) if (
        name not in self.objects and not attribute.startswith("__")
      ):
        return {name}
      case ast.Attribute(value=value, attr=attribute) if attribute not in DATA_NAMES:
        return self._made_by(value)
      case ast.Expr(value=ast.Call(func=ast.Attribute(value=value, attr=attribute))):
        if attribute not in DATA_NAMES:
          return self._made_by(value)
        return _capitalized(self._made_by(value)) if attribute not in _IN_PLACE else set()
      case ast.Call(func=ast.Name(id="isinstance"), args=[_, ast.Name(id=name)]):
        return {name}
      case ast.Call(func=ast.Name(id=name), args=[], keywords=[]):
        return _capitalized({name})
      case ast.Compare(left=left, comparators=others):
        made = [self._made_by(each) for each in (left, *others)]
        return _capitalized(set().union(*(x & y for x, y in itertools.pairwise(made))))
    return set()


def _assignments(node: ast.AST) -> list[tuple[ast.AST, ast.AST | None]]:
  match node:
    case ast.Assign(targets=targets, value=value):
      return [(target, value) for target in targets]
    case ast.NamedExpr(target=target, value=value):
      return [(target, value)]
    case ast.AnnAssign(target=target, value=value):
      return [(target, value)]
    case ast.withitem(context_expr=value, optional_vars=ast.Name() as target):
      return [(target, value)]
  return []


def _capitalized(names: set[str]) -> set[str]:
  return {name for name in names if name.lstrip("_")[:1].isupper()}
