"""Answers in free text: where they stand, and which of them are numbers."""

import re
from fractions import Fraction

from pgax.rewards.math import MARKER
from pgax.rewards.numbers import WHOLE, ascii_minus, last_number

_OPEN, _CLOSE = "<answer>", "</answer>"
_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")
_BRACE = re.compile(r"(?<!\\)[{}]")
# The exponent is bounded: ten to the power of it is computed.
_NUMBER = re.compile(rf"([-+]?)({WHOLE}|)(\.\d*)?(?:[eE]([-+]?0*\d{{1,3}}))?(?:/(\d+))?")
_FRACTION = re.compile(r"([-+]?)\\[dt]?frac\{(\d+)\}\{(\d+)\}")
# What is wrapped around an answer and is no part of it.
_WRAPPING = (("\\(", "\\)"), ("\\[", "\\]"), ("$$", "$$"), ("$", "$"))
# Reading a number costs time that grows with the square of its digits.
_MAX_DIGITS = 4000


def boxed(text: str) -> str | None:
  r"""Contents of the last `\boxed{...}` or `\fbox{...}` that is closed, or None."""
  boxes = {match.end() for match in _BOX.finditer(text)}
  opened, last = [], slice(0, 0)
  for brace in _BRACE.finditer(text) if boxes else ():
    if brace.group() == "{":
      opened.append(brace.end())
    elif opened and (start := opened.pop()) in boxes and start > last.start:
      last = slice(start, brace.start())
  return text[last] if last.start else None


def _tagged(text: str) -> str | None:
  """What stands in the last `<answer>...</answer>`: an opening tag alone is text."""
  start = text.rfind(_OPEN, 0, max(text.rfind(_CLOSE), 0))
  if start < 0:
    return None
  start += len(_OPEN)
  return text[start : text.index(_CLOSE, start)]


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
  tagged = _tagged(text)
  if tagged is not None:
    text = tagged
  inner = boxed(text)
  if inner is None and MARKER in text:
    inner = text.rpartition(MARKER)[2].partition("\n")[0]
  if inner is None:
    inner = tagged
  if inner is None and plain:
    inner = last_number(text)
  return inner.strip() or None if inner is not None else None


def tagged_answer(text: str) -> str:
  """The answer in a text, of whatever kind: it need not be a number.

  Args:
    text: a completion.

  Returns:
    What stands in the last `<answer>...</answer>`; or else behind the last `####`, to the
    end of the line; or else the whole text. Without white space around it.
  """
  tagged = _tagged(text)
  if tagged is not None:
    return tagged.strip()
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
  """An answer with ASCII's minus, and no dollars, white space or full stop around it."""
  text = ascii_minus(answer).strip().rstrip(".").strip()
  for left, right in _WRAPPING:
    if text.startswith(left) and text.endswith(right) and len(text) > len(left + right):
      text = text[len(left) : -len(right)].strip()
  return text


def exact_number(answer: str) -> Fraction | None:
  r"""The number that an answer is, exactly: `-1,234.5`, `$5`, `1.5e3` or `\frac{2}{3}`.

  Args:
    answer: the whole answer.

  Returns:
    The number, or None if the answer is something else.
  """
  # What is too long is not read at all: some of this takes more than linear time.
  text = answer.strip()
  if len(text) > _MAX_DIGITS:
    return None
  text = clean(text).replace("\\$", "").replace("\\!", "").replace("$", "")
  # White space stands between groups of three digits, and around signs; elsewhere it parts
  # two numbers: `1 1/2` is neither 11/2 nor 12, and `2e + 3` is a sum.
  text = re.sub(r"(?<![\seE])\s*([-+/{}])\s*", r"\1", text.strip())
  if re.fullmatch(r"[-+]?\d{1,3}(?:\s\d{3})+(?:\.\d*)?", text):
    text = "".join(text.split())
  if match := _FRACTION.fullmatch(text):
    sign, numerator, denominator = match.groups()
    decimals = exponent = None
  elif match := _NUMBER.fullmatch(text):
    sign, numerator, decimals, exponent, denominator = match.groups()
  else:
    return None
  places = len(decimals or ".") - 1
  digits = numerator.replace(",", "") + (decimals or ".")[1:]
  if not digits or (denominator and not int(denominator)):
    return None
  value = Fraction(int(digits), 10**places) * Fraction(10) ** int(exponent or 0)
  value /= int(denominator or 1)
  return -value if sign == "-" else value
