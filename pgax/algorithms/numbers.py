"""Partitions an algorithm into static structure and numbers, which may be traced.

The numbers of an algorithm, such as clip bounds and coefficients, are arguments of compiled
steps. Changing one compiles nothing, and a study maps over many of them at once.
"""

import dataclasses
import functools
import math
import numbers
import types
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp

from pgax.algorithms import checks
from pgax.algorithms.spec import Algorithm
from pgax.algorithms.stateful import StepSignals
from pgax.settings import with_settings
from pgax.types import Array

_Part = TypeVar("_Part")
_SHAPE = {"prompts": 2, "group": 2, "prompt_length": 3, "completion_length": 3}


class _Missing:
  """Placeholder of a number in a structure; all are equal."""

  def __repr__(self) -> str:
    return "<number>"


_MISSING = _Missing()


class Partitioned(NamedTuple):
  """A value, partitioned.

  Attributes:
    structure: the value without its numbers; equal for values that differ in these alone,
      and hashable if the value is. All that it is good for is `combine`.
    numbers: the numbers, by their paths, such as `surrogate.clip_high`.
  """

  structure: Any
  numbers: dict[str, float]


def partition(algorithm: Algorithm) -> Partitioned:
  """Partitions an algorithm into its structure and its numbers.

  Numbers are finite values of fields that are annotated as `float`, in the algorithm or in
  its parts. Whole numbers, such as `epochs`, are structure, and so is a number that a part
  decides by in Python, since it can't be traced.

  Args:
    algorithm: the algorithm.

  Returns:
    A `Partitioned`; `combine` returns the algorithm again.

  Example:
    >>> algorithms.partition(algorithms.grpo()).numbers["surrogate.clip_high"]
    0.2
  """
  try:
    names = _traceable_cached(algorithm)
  except TypeError:  # a part has no hash
    names = _traceable(algorithm)
  return partition_at(algorithm, names)


def combine(structure: _Part, numbers: Mapping[str, Array | float]) -> _Part:
  """Puts numbers, which may be traced, into a structure.

  The ranges of settings are not checked here, but where the value is made.

  Args:
    structure: structure, or any value of nested dataclasses and tuples.
    numbers: numbers by their paths.

  Returns:
    The value with these numbers.

  Raises:
    ValueError: if the value has no such path.
  """
  return with_settings(structure, numbers, type(structure).__name__, checked=False)


def partition_at(value: _Part, paths: Iterator[str]) -> Partitioned:
  """Partitions a value of nested dataclasses and tuples at the paths of numbers."""
  everything = find_numbers(value)
  taken = {path: everything[path] for path in paths}
  return Partitioned(combine(value, dict.fromkeys(taken, _MISSING)), taken)


def find_numbers(value: Any) -> dict[str, float]:
  """Finds the finite numbers in fields annotated as `float`, by their paths.

  Args:
    value: a dataclass, whose fields may be dataclasses or tuples of them.

  Returns:
    The numbers as floats.
  """
  return {path: float(x) for path, field, x in _fields(value, "") if _is_float(field, x)}


def missing_numbers(structure: Any) -> tuple[str, ...]:
  """Returns the paths of the numbers that a structure lacks."""
  return tuple(path for path, _, x in _fields(structure, "") if x is _MISSING)


def _fields(value: Any, prefix: str) -> Iterator[tuple[str, dataclasses.Field, Any]]:
  """Yields path, field and value of the fields of dataclasses, at any depth."""
  if isinstance(value, tuple):
    for index, item in enumerate(value):
      yield from _fields(item, f"{prefix}{index}.")
  if not dataclasses.is_dataclass(value) or isinstance(value, type):
    return
  for field in (field for field in dataclasses.fields(value) if field.init):
    item, path = getattr(value, field.name, None), f"{prefix}{field.name}"
    yield path, field, item
    yield from _fields(item, f"{path}.")


def _is_float(field: dataclasses.Field, value: Any) -> bool:
  kind = getattr(field.type, "__name__", str(field.type))
  if "float" not in (part.strip() for part in str(kind).split("|")):
    return False
  is_real = isinstance(value, numbers.Real) and not isinstance(value, bool)
  return is_real and math.isfinite(value)


def _traceable(algorithm: Algorithm) -> tuple[str, ...]:
  """Paths of the numbers that can be traced, all at once."""
  found = find_numbers(algorithm)
  # An algorithm whose numbers are rejected stays as it is, and is rejected when it runs.
  if not _traces(algorithm, {}):
    return ()
  if _traces(algorithm, found):
    return tuple(found)
  alone = {path: x for path, x in found.items() if _traces(algorithm, {path: x})}
  return tuple(alone) if _traces(algorithm, alone) else ()


_traceable_cached = functools.lru_cache(maxsize=256)(_traceable)


def _traces(algorithm: Algorithm, traced: Mapping[str, float]) -> bool:
  """Returns whether all that a step calls can be traced, with these numbers traced."""

  def call(values: Mapping[str, Array]) -> None:
    combined = combine(algorithm, values)
    checks.trace(combined, **_SHAPE, step_rewards=True)
    _update_parts(combined)

  try:
    jax.eval_shape(call, dict(traced))
  except Exception:  # a part made elsewhere may fail in any way
    return False
  return True


def _update_parts(algorithm: Algorithm) -> None:
  """Calls all stateful parts on a batch with the fields that they read."""
  one, tokens = jnp.float32(1), jnp.zeros((2, 2, 3))
  batch = types.SimpleNamespace(
    rewards=tokens[..., 0],
    valid=tokens[..., 0] == 0,
    loss_mask=tokens == 0,
    ref_logp=tokens,
    old_logp=tokens,
  )
  states = algorithm.init()
  algorithm.update(states, StepSignals(batch, tokens, one, one, one))
  for name in ("kl", "entropy"):
    if name in states:
      getattr(algorithm, name).value(states[name])
