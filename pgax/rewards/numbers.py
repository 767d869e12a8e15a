"""Numbers as people write them: what all verifiers that read numbers share."""

import re

# Commas part groups of three digits; elsewhere they part numbers: `1,2` is not 12.
WHOLE = r"(?:\d{1,3}(?:,\d{3})+|\d+)"

# A number as it stands in running text, read over whole (`(?>`): of `3.5x` no part is one.
# The sign is not that of `3-2`, and of `1,2` no part is a number.
_RUNNING = (
  r"(?<![\w.])(?!(?<=\d,)\d)[-+]?\$?"
  r"(?>(?:\d+(?:,\d+)*(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d+)?(?:/\d+)?)"
)
_PATTERNS = {units: re.compile(_RUNNING + r"(?![\w/])" * (not units)) for units in (0, 1)}


def ascii_minus(text: str) -> str:
  """A text whose minus signs, U+2212, are those of ASCII."""
  return text.replace("\N{MINUS SIGN}", "-")


def last_number(text: str, units: bool = False) -> str | None:
  """The last thing in a text that looks like a number, as it is written.

  Args:
    text: running text.
    units: whether a letter may follow at once, as in `5kg`.

  Returns:
    Digits with signs, commas, a point, an exponent or a denominator; `1,2` among them,
    which `answers.exact_number` refuses. None if there is nothing like it.
  """
  found = _PATTERNS[units].findall(ascii_minus(text))
  return found[-1] if found else None
