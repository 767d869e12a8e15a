"""Answers in free text: where they stand, and which of them are numbers."""

import re
from fractions import Fraction

from pgax.rewards.math import MARKER

_TAG = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
_BOX = re.compile(r"\\f?boxed\s*\{")
# A number as it stands in running text; the sign is not that of `3-2`.
_PLAIN = re.compile(r"(?<![\w.])[-+]?\$?\d[\d,]*(?:\.\d+)?(?:/\d+)?(?![\w/])")
_NUMBER = re.compile(r"([-+]?)(\d{1,3}(?:,\d{3})+|\d+|)(\.\d*)?(?:/(\d+))?")
_FRACTION = re.compile(r"([-+]?)\\[dt]?frac\{(\d+)\}\{(\d+)\}")
# What is wrapped around an answer and is no part of it.
_WRAPPING = (("\\(", "\\)"), ("\\[", "\\]"), ("$$", "$$"), ("$", "$"))
# Reading a number costs time that grows with the square of its digits.
_MAX_DIGITS = 4000


def boxed(text: str) -> str | None:
  r"""Contents of the last `\boxed{...}` whose braces are balanced, or None."""
  for match in reversed(list(_BOX.finditer(text))):
    depth = 1
    for index in range(match.end(), len(text)):
      escaped = text[index - 1] == "\\"
      depth += {"{": 1, "}": -1}.get(text[index], 0) * (not escaped)
      if not depth:
        return text[match.end() : index]
  return None


def extract_answer(text: str, plain: bool = True) -> str | None:
  r"""The final answer in a text.

  Looked for in this order: the last `<answer>...</answer>`; what stands in the last
  `\boxed{...}` (inside of those tags, if there are any); the line behind the last `####`;
  the last plain number.

  Args:
    text: a completion or a reference solution.
    plain: whether a plain number will do.

  Returns:
    The answer without white space around it, or None if there is none.
  """
  tagged = _TAG.findall(text)
  if tagged:
    text = tagged[-1]
  inner = boxed(text)
  if inner is None and MARKER in text:
    inner = text.rpartition(MARKER)[2].partition("\n")[0]
  if inner is None and tagged:
    inner = text
  if inner is None and plain:
    inner = (_PLAIN.findall(text) or [None])[-1]
  return inner.strip() or None if inner is not None else None


def tagged_answer(text: str) -> str:
  """The answer in a text, of whatever kind: it need not be a number.

  Args:
    text: a completion.

  Returns:
    What stands in the last `<answer>...</answer>`; or else behind the last `####`, to the
    end of the line; or else the whole text. Without white space around it.
  """
  tagged = _TAG.findall(text)
  if tagged:
    return tagged[-1].strip()
  _, marker, tail = text.rpartition(MARKER)
  return (tail.partition("\n")[0] if marker else text).strip()


def marked_answer(text: str) -> str | None:
  """The answer that a completion votes for, of whatever kind: see `rewards.voting`.

  Args:
    text: a completion.

  Returns:
    The answer that is marked, as `extract_answer` finds it; or else the whole text; None
    if there is nothing in it.
  """
  return extract_answer(text, plain=False) or tagged_answer(text) or None


def clean(answer: str) -> str:
  """An answer without dollar signs, white space and a full stop around it."""
  text = answer.strip().rstrip(".").strip()
  for left, right in _WRAPPING:
    if text.startswith(left) and text.endswith(right) and len(text) > len(left + right):
      text = text[len(left) : -len(right)].strip()
  return text


def exact_number(answer: str) -> Fraction | None:
  r"""The number that an answer is, exactly: `-1,234.5`, `$5`, `2/3` or `\frac{2}{3}`.

  Args:
    answer: the whole answer.

  Returns:
    The number, or None if the answer is something else.
  """
  text = clean(answer).replace("\\$", "").replace("\\!", "").replace("$", "")
  # White space stands between groups of three digits, and around signs; elsewhere it parts
  # two numbers: `1 1/2` is neither 11/2 nor 12.
  text = re.sub(r"\s*([-+/{}])\s*", r"\1", text.strip())
  if re.fullmatch(r"[-+]?\d{1,3}(?:\s\d{3})+(?:\.\d*)?", text):
    text = "".join(text.split())
  if len(text) > _MAX_DIGITS:
    return None
  if match := _FRACTION.fullmatch(text):
    sign, numerator, denominator = match.groups()
    decimals = None
  elif match := _NUMBER.fullmatch(text):
    sign, numerator, decimals, denominator = match.groups()
  else:
    return None
  places = len(decimals or ".") - 1
  digits = numerator.replace(",", "") + (decimals or ".")[1:]
  if not digits or (denominator and not int(denominator)):
    return None
  value = Fraction(int(digits), 10**places) / int(denominator or 1)
  return -value if sign == "-" else value
