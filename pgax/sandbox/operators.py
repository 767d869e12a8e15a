"""Operators that a proxy forwards to an object in another process, by name."""

import operator
from collections.abc import Callable
from typing import Any

UNARY: dict[str, Callable] = {
  "abs": abs,
  "float": float,
  "int": int,
  "invert": operator.invert,
  "neg": operator.neg,
  "pos": operator.pos,
}
COMPARISONS: dict[str, Callable] = {
  "ge": operator.ge,
  "gt": operator.gt,
  "le": operator.le,
  "lt": operator.lt,
}
_ARITHMETIC = ("add", "floordiv", "lshift", "matmul", "mod", "mul", "pow", "rshift", "sub")
_ARITHMETIC += ("truediv", "and_", "or_", "xor")


def _reflected(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
  return lambda x, y: function(y, x)


# Includes reflected operators, such as `radd`, and in-place ones, such as `iadd`.
BINARY: dict[str, Callable] = {}
for _name in _ARITHMETIC:
  BINARY[_name] = getattr(operator, _name)
  BINARY[f"r{_name}"] = _reflected(getattr(operator, _name))
  BINARY[f"i{_name.strip('_')}"] = getattr(operator, f"i{_name.strip('_')}")
