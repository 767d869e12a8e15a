"""Finds answers in free text and parses those that are numbers."""

import re
from fractions import Fraction

from pgax.rewards.math import MARKER
from pgax.rewards.numbers import INTEGER, ascii_minus, last_number
from pgax.rewards.sentences import final_answer

_OPEN, _CLOSE = "<answer>", "</answer>"
_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")
# Between two boxes: LaTeX that shows nothing, and a name before the second, as in `a = `.
_INVISIBLE = re.compile(r"\\(?:text|quad|qquad|[ ,;:!()\[\]])|[\s${}&]")
_BEGINNING = re.compile(r"(?:[A-Za-z](?:_\{?\w\}?)?\s*=\s*)?\\(?:boxed|fbox)\s*\{\Z")
# What joins the boxes, perhaps after a few words: `\boxed{1} papers and \boxed{2} bins`.
_JOINT = re.compile(r"(?:[a-z() ]*(?:\b(?:and|or)|[,;]))?")
_MAX_JOINT = 80
_BRACE = re.compile(r"(?<!\\)[{}]")
# The exponent is bounded, because ten to its power is computed exactly.
_NUMBER = re.compile(rf"([-+]?)({INTEGER}|)(\.\d*)?(?:[eE]([-+]?0*\d{{1,3}}))?(?:/(\d+))?")
_FRACTION = re.compile(r"([-+]?)\\[dt]?frac\{(\d+)\}\{(\d+)\}")
# Math delimiters around an answer.
_WRAPPING = (("\\(", "\\)"), ("\\[", "\\]"), ("$$", "$$"), ("$", "$"))
# Emphasis in Markdown or LaTeX, of the entire answer.
_EMPHASIS = re.compile(r"\*\*([^*]+)\*\*|\\(?:text|textbf|mathbf|mathrm)\{([^{}\\]+)\}")
# The time to parse a number grows with the square of its length.
_MAX_DIGITS = 4000


def boxed(text: str) -> str | None:
  r"""Returns the contents of the last closed `\boxed{...}` or `\fbox{...}`, or None.

  Boxes that `and`, `or` or a comma joins to it are part of the answer, whose contents are
  then separated by commas: `\boxed{1} and \boxed{2}` is `1, 2`.
  """
  boxes = _boxes(text)
  if not boxes:
    return None
  first = len(boxes) - 1
  while first and _are_joined(text[boxes[first - 1].stop + 1 : boxes[first].start]):
    first -= 1
  return ", ".join(text[box] for box in boxes[first:])


def _are_joined(between: str) -> bool:
  """Returns whether text between two boxes, up to the brace of the second, joins them."""
  if len(between) > _MAX_JOINT:
    return False
  visible = _INVISIBLE.sub(" ", _BEGINNING.sub("", between)).strip()
  return _JOINT.fullmatch(visible) is not None


def _boxes(text: str) -> list[slice]:
  """Finds the contents of closed boxes, in order; of nested boxes, the inner ones."""
  starts = {match.end() for match in _BOX.finditer(text)}
  opened, boxes = [], []
  for brace in _BRACE.finditer(text) if starts else ():
    if brace.group() == "{":
      opened.append(brace.end())
    elif opened:
      start = opened.pop()
      if start in starts and not (boxes and start < boxes[-1].start):
        boxes.append(slice(start, brace.start()))
  return boxes


def _tagged(text: str) -> str | None:
  """Returns the contents of the last `<answer>...</answer>`, or None."""
  start = text.rfind(_OPEN, 0, max(text.rfind(_CLOSE), 0))
  if start < 0:
    return None
  start += len(_OPEN)
  return text[start : text.index(_CLOSE, start)]


def extract_answer(text: str, plain: bool = True) -> str | None:
  r"""Extracts the final answer of a text.

  If the text has `<answer>...</answer>`, only the last pair of tags is searched. The answer
  is, in this order, what follows `final answer is` after all boxes, the contents of the
  last `\boxed{...}` and of those joined to it (see `boxed`), the rest of the line after the
  last `####`, the contents of the tags, or the last number in the text.

  Args:
    text: a completion or a reference solution.
    plain: whether a number without any mark counts as an answer.

  Returns:
    The answer without surrounding white space, or None if there is none.
  """
  tagged = _tagged(text)
  if tagged is not None:
    text = tagged
  inner = boxed(text)
  if inner is not None and (final := final_answer(text[_boxes(text)[-1].stop :])):
    inner = final
  if inner is None and MARKER in text:
    inner = text.rpartition(MARKER)[2].partition("\n")[0]
  if inner is None:
    inner = tagged
  if inner is None and plain:
    inner = last_number(text)
  return inner.strip() or None if inner is not None else None


def tagged_answer(text: str) -> str:
  """Extracts an answer that may be any text.

  Args:
    text: a completion.

  Returns:
    The contents of the last `<answer>...</answer>`; or else the rest of the line after the
    last `####`; or else the entire text. Surrounding white space is removed.
  """
  tagged = _tagged(text)
  if tagged is not None:
    return tagged.strip()
  _, marker, tail = text.rpartition(MARKER)
  return (tail.partition("\n")[0] if marker else text).strip()


def marked_answer(text: str) -> str | None:
  """Extracts the answer that a completion votes for in `evaluation.majority_at_k`.

  Args:
    text: a completion.

  Returns:
    The marked answer, as `extract_answer` returns it, or else the entire text; None if that
    is empty.
  """
  return extract_answer(text, plain=False) or tagged_answer(text) or None


def clean(answer: str) -> str:
  """Normalizes an answer, beginning with its minus signs.

  Math delimiters, emphasis of the entire answer, an equals sign before it, a final period
  and surrounding white space are removed.
  """
  text = _plain(ascii_minus(answer))
  for left, right in _WRAPPING:
    if text.startswith(left) and text.endswith(right) and len(text) > len(left + right):
      text = _plain(text[len(left) : -len(right)])
  return text


def _plain(text: str) -> str:
  text = text.strip().rstrip(".").strip()
  if match := _EMPHASIS.fullmatch(text):
    text = (match[1] or match[2]).strip().rstrip(".").strip()
  return text.removeprefix("=").strip() or text


def exact_number(answer: str) -> Fraction | None:
  r"""Parses an answer such as `-1,234.5`, `$5`, `1.5e3` or `\frac{2}{3}`, exactly.

  Args:
    answer: text of the answer alone.

  Returns:
    The number, or None if the answer is not a number.
  """
  # Long text is rejected first, because some of these steps take more than linear time.
  text = answer.strip()
  if len(text) > _MAX_DIGITS:
    return None
  text = clean(text).replace("\\$", "").replace("\\!", "").replace("$", "")
  # White space is allowed around signs and between groups of three digits. Elsewhere it
  # separates two numbers: `1 1/2` is neither 11/2 nor 12, and `2e + 3` is a sum.
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
