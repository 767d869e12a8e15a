"""Patterns of numbers as people write them, shared by the verifiers."""

import re

# Commas separate groups of three digits; otherwise they separate numbers: `1,2` is not 12.
INTEGER = r"(?:\d{1,3}(?:,\d{3})+|\d+)"

# A number in running text. The atomic group (`(?>`) matches a number with everything that
# is attached to it, so no part of `3.5x`, `1,2`, `3-5`, `14:30` or `10^6` is a number. The
# lookbehinds exclude operands, whose value is not that of the expression.
_RUNNING = (
  r"(?<![\w.^/\u00b1\u221a])(?<!\w\()(?!(?<=\d,)\d)[-+]?\$?"
  r"(?>(?:\d+(?:,\d+)*(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d+)?(?:/\d+)?"
  r"(?:[-:^]\d+(?:[.,]\d+)*)*)"
)
_PATTERNS = {units: re.compile(_RUNNING + r"(?![\w/])" * (not units)) for units in (0, 1)}


def ascii_minus(text: str) -> str:
  """Replaces minus signs, and en dashes used as such, by ASCII hyphens."""
  return text.replace("\N{MINUS SIGN}", "-").replace("\N{EN DASH}", "-")


def last_number(text: str, units: bool = False) -> str | None:
  """Finds the last text that looks like a number.

  Args:
    text: running text.
    units: whether a letter may follow immediately, as in `5kg`.

  Returns:
    Digits with signs, commas, a decimal point, an exponent or a denominator; None if there
    are none. The text may still be one that `answers.exact_number` rejects, such as `1,2`
    or `3-5`.
  """
  matches = _PATTERNS[units].findall(ascii_minus(text))
  return matches[-1] if matches else None
