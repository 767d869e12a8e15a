"""Numbers as people write them: what all verifiers that read numbers share."""

import re

# Commas part groups of three digits; elsewhere they part numbers: `1,2` is not 12.
WHOLE = r"(?:\d{1,3}(?:,\d{3})+|\d+)"

# A number as it stands in running text, read over whole (`(?>`): of `3.5x` no part is one,
# nor of `1,2`, `3-5`, `14:30` and `10^6`. What it is an operand of, it is not the value of.
_RUNNING = (
  r"(?<![\w.^/\u00b1\u221a])(?<!\w\()(?!(?<=\d,)\d)[-+]?\$?"
  r"(?>(?:\d+(?:,\d+)*(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d+)?(?:/\d+)?"
  r"(?:[-:^]\d+(?:[.,]\d+)*)*)"
)
_PATTERNS = {units: re.compile(_RUNNING + r"(?![\w/])" * (not units)) for units in (0, 1)}


def ascii_minus(text: str) -> str:
  """A text whose minus signs and en dashes, which stand for them, are ASCII's hyphens."""
  return text.replace("\N{MINUS SIGN}", "-").replace("\N{EN DASH}", "-")


def last_number(text: str, units: bool = False) -> str | None:
  """The last thing in a text that looks like a number, as it is written.

  Args:
    text: running text.
    units: whether a letter may follow at once, as in `5kg`.

  Returns:
    Digits with signs, commas, a point, an exponent or a denominator; `1,2` and `3-5` among
    them, which `answers.exact_number` refuses. None if there is nothing like it.
  """
  found = _PATTERNS[units].findall(ascii_minus(text))
  return found[-1] if found else None
