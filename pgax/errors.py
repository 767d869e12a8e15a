"""Errors that a user can fix, and checks of settings that raise them."""

import math


class UserError(ValueError):
  """A bad setting, folder or file; the message says what is wrong and how to fix it."""


def check_at_least(config: object, minimum: float, *names: str) -> None:
  """Checks that settings are finite and not below a minimum.

  Args:
    config: object that has the settings as attributes.
    minimum: smallest value that is allowed.
    *names: names of the settings.

  Raises:
    ValueError: for the first setting that is out of its range.
  """
  for name in names:
    value = vars(config)[name]
    if not minimum <= value < math.inf:  # also rejects nan
      raise ValueError(f"{name} is {value}; it must be at least {minimum}, and finite")
