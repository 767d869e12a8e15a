"""Compares answers as mathematics with math-verify, with bounded effort.

An answer is text that a model wrote, so it may be made to take forever: `10^{10^{10}}`.
The bounds are numbers of things, not seconds, so a result does not depend on the machine.
"""

import functools
import logging
import math
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

from pgax.rewards.answers import clean
from pgax.rewards.numbers import with_point
from pgax.rewards.sentences import conclusion, delimited, only_number

# Far beyond any answer, and within seconds.
_MAX_CHARACTERS, _MAX_LATEX, _MAX_NODES, _MAX_CALLS = 20_000, 1000, 300, 3_000_000
_MAX_BITS, _MAX_TERMS, _MAX_EXPANDED = 2**17, 1000, 5000
# These are evaluated as soon as they are parsed, so large ones must not be.
_BINOMIAL = re.compile(r"binom\s*\{[^{}]*(?:\d{5}|[\\^!*])|choose")
_BASE = re.compile(r"\d\}?\s*_")
# math-verify rounds to 6 decimals, so it takes all tiny numbers for equal.
_MAX_RELATIVE_ERROR = 1e-3


class _TooManyCallsError(BaseException):
  """Ends a comparison; not an `Exception`, because sympy catches those."""


def equal(gold: str, answer: str) -> bool:
  """Returns whether math-verify finds an answer equal to the right answer.

  Args:
    gold: the right answer.
    answer: the answer to verify, which may be a sentence.

  Returns:
    Whether it is equal; False if that takes too many steps to find out.
  """
  if max(len(gold), len(answer)) > _MAX_CHARACTERS:
    return False
  try:
    return _limited(_equal, gold, answer)
  except (_TooManyCallsError, RecursionError, MemoryError):
    return False


def _equal(gold: str, answer: str) -> bool:
  # A question, or a number in another base, which math-verify reads as in base 10.
  if "?" in answer or (_BASE.search(answer) and not _BASE.search(gold)):
    return False
  golds = [_parse(text) for text in _readings(gold, numbers=False)]
  for text in _readings(answer, numbers=True):
    found = _parse(text)
    if found and any(_verify(x, found) for x in golds if x):
      return True
  return False


def _readings(text: str, numbers: bool) -> Iterator[str | None]:
  """Candidates for the answer, the entire text first; optionally numbers in prose."""
  yield clean(text)
  yield with_point(clean(text))
  text = conclusion(text)
  yield delimited(text)
  number = only_number(text) if numbers else None
  yield number and (with_point(number) or number.replace("$", ""))


def _parse(text: str | None) -> list:
  """Parses LaTeX; the result has a sympy object, and the text for want of one."""
  math_verify = _library()
  if text is None or len(text) > _MAX_LATEX or not _balanced(text):
    return []
  if _BINOMIAL.search(text):
    return []
  # In a box, the text is one LaTeX answer, and nothing else is searched for.
  config = math_verify.LatexExtractionConfig(
    boxed_match_priority=0, try_extract_without_anchor=False
  )
  parsed = math_verify.parse(
    f"\\boxed{{{text}}}", [config], extraction_mode="first_match", parsing_timeout=None
  )
  return [] if any(map(_is_unusable, parsed)) else parsed


def _verify(gold: list, answer: list) -> bool:
  equal = _library().verify(gold, answer, timeout_seconds=None)
  return equal and _same_scale(gold[0], answer[0])


@functools.cache
def _library() -> Any:
  import math_verify  # an extra, and slow to load

  # It warns in every process that its time limits are off.
  logging.getLogger("math_verify").setLevel(logging.ERROR)
  return math_verify


def _balanced(text: str) -> bool:
  """Returns whether braces match, so the text cannot close the box around it."""
  depth = 0
  for index, character in enumerate(text):
    if index and text[index - 1] == "\\":
      continue
    depth += {"{": 1, "}": -1}.get(character, 0)
    if depth < 0:
      return False
  return not depth


def _same_scale(gold: Any, answer: Any) -> bool:
  """Returns whether numbers differ by a small fraction; True for anything else."""
  if not (getattr(gold, "is_number", False) and getattr(answer, "is_number", False)):
    return True
  try:
    a, b = (complex(x.doit().evalf(30)) for x in (gold, answer))
  except (TypeError, ValueError, OverflowError, AttributeError):
    return True
  ratios = [b / a if a else 1.0 + b]
  if 0.009 < abs(ratios[0]) < 0.011 or 90 < abs(ratios[0]) < 110:
    ratios += [ratios[0] * 100, ratios[0] / 100]  # a percentage may lack its sign
  return any(abs(x - 1) < _MAX_RELATIVE_ERROR for x in ratios)


def _limited(function: Callable[..., bool], *arguments: str) -> bool:
  """Calls a function; raises if that calls more than `_MAX_CALLS` others.

  The profiler of this thread counts them. It works in any thread, unlike an alarm.
  """
  left = _MAX_CALLS

  def count(*_: object) -> None:
    nonlocal left
    left -= 1
    if left < 0:
      raise _TooManyCallsError

  before = sys.getprofile()
  sys.setprofile(count)
  try:
    return function(*arguments)
  finally:
    sys.setprofile(before)


def _is_unusable(value: Any) -> bool:
  """Returns whether a sympy object is false, undefined, or may take long to evaluate."""
  import sympy

  if isinstance(value, sympy.MatrixBase):
    return len(value) > _MAX_NODES or any(map(_is_unusable, value.flat()))
  if not isinstance(value, sympy.Basic):
    return False
  nodes = list(zip(sympy.preorder_traversal(value), range(_MAX_NODES + 1), strict=False))
  if len(nodes) > _MAX_NODES:
    return True
  return any(_is_unusable_node(node) for node, _ in nodes) or (
    _bits(value) > _MAX_BITS or _is_false(value)
  )


def _is_unusable_node(node: Any) -> bool:
  import sympy

  if isinstance(node, sympy.Sum | sympy.Product):
    lengths = [high - low for _, low, high in node.limits]
    return any(x.is_number and not abs(x) <= _MAX_TERMS for x in lengths)
  if isinstance(node, sympy.Pow) and node.exp.is_number:
    if node.base.is_zero:  # division by zero
      return bool(node.exp.is_negative)
    if not node.base.is_Add:
      return False
    terms, degree = len(node.base.args), abs(node.exp)  # sympy may expand it
    return not degree <= _MAX_TERMS or math.comb(int(degree) + terms, terms) > _MAX_EXPANDED
  return False


def _is_false(value: Any) -> bool:
  """Returns whether an equation is false: `3 = 5`, which math-verify reads as 5."""
  import sympy

  equations = [x for x in sympy.preorder_traversal(value) if isinstance(x, sympy.Eq)]
  if value.free_symbols:  # a chain such as `x = 2 + 3 = 5` is read from its ends
    return False
  return not all(_library().verify(*x.args, timeout_seconds=None) for x in equations)


def _magnitude(exponent: Any, bits: float) -> float:
  """Returns how large an exponent is, at least 1; inf if that is costly to find out."""
  if bits > 64 or not exponent.is_number:
    return math.inf if bits > 64 else 1.0
  try:
    return max(1.0, float(abs(exponent.evalf(5))))
  except (TypeError, ValueError, OverflowError):
    return math.inf


def _bits(node: Any) -> float:
  """Estimates how many bits the largest number of a calculation has; inf if too many."""
  import sympy

  inner = [_bits(x) for x in node.args]
  largest = max(inner, default=0.0)
  if isinstance(node, sympy.Rational):
    return float(max(node.p.bit_length(), node.q.bit_length()))
  if isinstance(node, sympy.Pow | sympy.exp):
    return (inner[0] if len(inner) > 1 else 2) * _magnitude(node.exp, inner[-1])
  if isinstance(node, sympy.factorial | sympy.binomial | sympy.gamma):
    return largest * 2**largest if largest < 14 else math.inf
  if isinstance(node, sympy.Mul):
    return sum(inner)
  return largest + len(inner)
