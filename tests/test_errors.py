"""Checks of settings, and the error for problems that a user can fix."""

import dataclasses
import math

import pytest

from pgax.errors import UserError, check_at_least


@dataclasses.dataclass
class Config:
  """Two settings."""

  steps: float
  rate: float


def test_settings_at_the_minimum_or_above_are_allowed():
  check_at_least(Config(1, 2.5), 1, "steps", "rate")


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf])
def test_the_first_bad_setting_is_named(value):
  message = f"rate is {value}; it must be at least 1, and finite"
  with pytest.raises(ValueError, match=message):
    check_at_least(Config(1, value), 1, "steps", "rate")


def test_whole_numbers_have_32_bits():
  @dataclasses.dataclass
  class Whole:
    steps: int

  check_at_least(Whole(2**31 - 1), 1, "steps")
  with pytest.raises(ValueError, match=r"steps is 2147483648; it must be below 2\*\*31"):
    check_at_least(Whole(2**31), 1, "steps")


def test_a_user_error_is_a_value_error():
  assert issubclass(UserError, ValueError)
