"""Errors that a user can fix, and checks of settings that raise them."""

import dataclasses
import math
import numbers
from collections.abc import Callable, Sequence
from typing import Any


class UserError(ValueError):
  """A bad setting, folder or file; the message says what is wrong and how to fix it."""


def check_at_least(config: object, minimum: float, *names: str) -> None:
  """Checks that settings are finite numbers, and not below a minimum.

  Args:
    config: dataclass of the settings; those annotated `int` must be whole numbers.
    minimum: smallest value that is allowed. Whole numbers must be below `2**31`, too, since
      shapes and counters have 32 bits.
    *names: names of the settings.

  Raises:
    ValueError: for the first setting that is no number, or out of its range.
  """
  types = {field.name: field.type for field in dataclasses.fields(config)}
  for name in names:
    value = getattr(config, name)
    kind = numbers.Integral if types[name] is int else numbers.Real
    if not isinstance(value, kind) or isinstance(value, bool):
      whole = "whole " if kind is numbers.Integral else ""
      raise ValueError(f"{name} is {value!r}; it must be a {whole}number")
    if not minimum <= value < math.inf:  # also rejects nan
      raise ValueError(f"{name} is {value}; it must be at least {minimum}, and finite")
    if kind is numbers.Integral and value >= 2**31:
      raise ValueError(f"{name} is {value}; it must be below 2**31")


def check_at_most(config: object, maximum: float, *names: str) -> None:
  """Checks that settings are not above a maximum.

  Args:
    config: dataclass of the settings, which are numbers.
    maximum: largest value that is allowed.
    *names: names of the settings.

  Raises:
    ValueError: for the first setting above it.
  """
  check_each(config, names, lambda x: x <= maximum, f"at most {maximum}")


def check_one_of(config: object, allowed: Sequence[str], *names: str) -> None:
  """Checks that settings are among the allowed names.

  Args:
    config: dataclass of the settings.
    allowed: names that are allowed.
    *names: names of the settings.

  Raises:
    ValueError: for the first setting that is not.
  """
  check_each(config, names, lambda x: x in allowed, f"one of {', '.join(allowed)}")


def check_each(
  config: object,
  names: Sequence[str],
  is_allowed: Callable[[Any], bool],
  must: str,
  prefix: str = "",
) -> None:
  """Checks settings by a condition.

  Args:
    config: dataclass of the settings.
    names: names of the settings.
    is_allowed: returns whether a value is allowed; false for nan.
    must: the condition in words, such as `positive`.
    prefix: path of the settings in errors, such as `model.`.

  Raises:
    ValueError: for the first setting that is not allowed.
  """
  for name in names:
    if not is_allowed(value := getattr(config, name)):
      raise ValueError(f"{prefix}{name} is {value!r}; it must be {must}")
