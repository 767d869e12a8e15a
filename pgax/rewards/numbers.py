"""Patterns of numbers as people write them, shared by the verifiers."""

import re

# Commas separate groups of three digits; otherwise they separate numbers: `1,2` is not 12.
# None begins with zero: `0,111` is a decimal number.
INTEGER = r"(?:[1-9]\d{0,2}(?:,\d{3})+|\d+)"
# A number with a decimal point, or with a decimal comma that separates no thousands.
DECIMAL = r"[1-9]\d{0,2}(?:,\d{3})+(?:\.\d+)?|\d+(?:[.,]\d+)?|\.\d+"
_COMMA = re.compile(r"([-+]?)(\d{1,3}(?:\.\d{3})+|\d+),(\d+)")

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


def with_point(text: str) -> str | None:
  """Rewrites a number that has a decimal comma.

  Args:
    text: text of an answer.

  Returns:
    The number with a decimal point; None if the text is none with a decimal comma, such as
    `1,234`, whose comma separates thousands.
  """
  match = _COMMA.fullmatch(text)
  if not match or re.fullmatch(INTEGER, text.lstrip("+-")):
    return None
  sign, whole, decimals = match.groups()
  return f"{sign}{whole.replace('.', '')}.{decimals}"


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
