r"""Finds the mathematics in a sentence: `$x \geq 5$` in `Therefore $x \geq 5$ is it`.

A sentence that names several answers has none, and neither has one that says more of its
number than that it is the answer: `not 5`, `5 or more`, `5 million`.
"""

import re

from pgax.rewards.numbers import DECIMAL

# Longer prose is reasoning, and a number in it would be the answer by chance only.
_MAX_WORDS = 30
_MATH = (
  r"(?:\$\$(?:[^$])+\$\$|(?<![\\$])\$[^$\n]+\$|\\\[(?:[^\\]|\\(?![\]\[]))+\\\]"
  r"|\\\((?:[^\\\n]|\\(?![()]))+\\\))(?:\s*(?:\\?%|percent\b))?"
)
# Joined by a comma or a word, several are one answer.
_JOINT = r"[\s,;]*(?:\b(?:and|or)\b\s*)?"
_JOINED = re.compile(rf"{_MATH}(?:{_JOINT}{_MATH})*")
_ONE = re.compile(_MATH)
_DELIMITERS = re.compile(r"^\s*(?:\$\$?|\\\[|\\\()|(?:\$\$?|\\\]|\\\))")
# Names such as `$n$`, `$ABC$` or `$f(x)$`, beside which there may be an answer.
_NAMES = re.compile(r"[^\w\\]*(?:[A-Za-z]+[^\w\\+=<>^|-]*)+")
_ANNOUNCED = re.compile(r"\banswers?\s*(?:(?:is|are)\b|:)", re.IGNORECASE)
_FINAL = re.compile(r"\b(?:the )?final answer(?:\s+is\b)?\s*:?", re.IGNORECASE)
_CONCLUDES = re.compile(r"\b(?:Therefore|Thus|Hence|So)\b")
_ENDING = re.compile(r"<\|im_|I hope it is correct")
_SHOWS_MATH = re.compile(r"[\d$\\]")
_EMPHASIS = re.compile(r"(?<![\w*])\*\*([^*]+)\*\*(?![\w*])")
_NUMBER = re.compile(rf"[-+]?\$?(?:\d+/\d+|{DECIMAL})(?:\s*(?:%|percent\b))?")
# What is denied is not offered: `not 10 but 12`.
_DENIED = re.compile(rf"(?:\bnot|n't)\s+{_NUMBER.pattern}(?:\s*,?\s*\bbut\b)?(?=\s)")
# An operator beside a number makes it an operand of something else.
_OPERATORS = r"[-+*/^=<>!|()\[\]{}~_\u00b1\u221a\u00d7\u00f7\u00b2\u00b3\u2264\u2265\u2260]"
_BEFORE = re.compile(rf"(?:[\w.,:]|{_OPERATORS}\s*)$")
_AFTER = re.compile(rf"\w|[.,:]\d|\s*{_OPERATORS}")
# Words that offer a choice, deny a number or change it.
_CHANGING = re.compile(
  r"\b(?:"
  r"not|no|nor|never|neither|none|or|either|except|but|unless|if|than|least|most|more|less|"
  r"between|wrong|incorrect|cannot|false|over|under|above|below|maybe|perhaps|possibly|any|"
  r"all|negative|minus|plus|times|hundred|thousand|million|billion|trillion|dozen|dozens|"
  r"half|third|quarter|twice|double|triple|squared|cubed|square|cube|root|infinity|infinite"
  r")\b"
)
_SPELLED = "(?:zero|one|two|three|four|five|six|seven|eight|nine|ten)"
_CHOICE = re.compile(
  rf"\b(?:and|or)\s+{_SPELLED}\b|\b{_SPELLED}\s*(?:,|\band\b|\bor\b)", re.IGNORECASE
)


def final_answer(text: str) -> str | None:
  """Finds the part of a text that it calls its final answer.

  Args:
    text: a completion, or the end of one.

  Returns:
    What follows `final answer is`, up to `I hope it is correct`; None if nothing does, or
    several do.
  """
  _, *announced = _FINAL.split(_ENDING.split(text)[0])
  finals = [part.strip() for part in announced if _SHOWS_MATH.search(part)]
  return finals[0] if len(finals) == 1 else None


def conclusion(text: str) -> str:
  """Returns the part of a reasoning that announces its answer.

  Args:
    text: text of an answer.

  Returns:
    What follows `final answer is` (see `final_answer`); or else what follows the last
    `Therefore` or the like, unless a short text has several; or else the entire text.
  """
  if final := final_answer(text):
    return final
  _, *parts = _CONCLUDES.split(_ENDING.split(text)[0])
  concluding = [part for part in parts if _SHOWS_MATH.search(part)]
  short = len(text.split()) <= _MAX_WORDS
  return text if not concluding or (short and len(concluding) > 1) else concluding[-1]


def delimited(sentence: str) -> str | None:
  """Finds the only mathematics between delimiters.

  Args:
    sentence: a sentence. If it has `the answer is`, the text after it is searched.

  Returns:
    LaTeX without the delimiters; separated by commas if `and`, `or` or a comma joins
    several; None if there is none, or more that is not joined.
  """
  text, prose = _read(sentence)
  runs = _JOINED.findall(text)
  if len(runs) > 1:  # `The pair $(x, y)$ is $(1, 2)$.`
    runs = [run for run in runs if not _NAMES.fullmatch(run)]
  if prose is None or len(runs) != 1 or re.search(r"\d", prose):
    return None
  return ", ".join(_DELIMITERS.sub("", part).strip() for part in _ONE.findall(runs[0]))


def only_number(sentence: str) -> str | None:
  """Finds the number of a sentence that has only one.

  Args:
    sentence: a sentence. If it has `the answer is`, the text after it is searched.

  Returns:
    The number with its sign, currency and percent sign; None if there is another, or the
    number is part of something else, such as `5x` or `3-5`.
  """
  text, prose = _read(sentence)
  if prose is None or not all(map(_NAMES.fullmatch, _JOINED.findall(text))):
    return None
  match = _NUMBER.search(prose)
  if not match:
    return None
  before, after = prose[: match.start()], prose[match.end() :]
  attached = _BEFORE.search(before) or _AFTER.match(after)
  return None if attached or re.search(r"\d", before + after) else match.group()


def _read(sentence: str) -> tuple[str, str | None]:
  """Returns the text that may hold the answer, and its prose; None if there is too much."""
  sentence = _EMPHASIS.sub(r"\1", sentence)
  announced = [x for x in _ANNOUNCED.split(sentence)[1:] if _SHOWS_MATH.search(x)]
  text = _DENIED.sub(" ", announced[0] if announced else sentence).replace('\\"', '"')
  prose = _JOINED.sub(" ", text)
  prose = prose.lower().replace("n't", " not ")
  # A stray delimiter: the text that it encloses is unknown.
  stray = "\\" in prose or prose.count("$") > 1
  unclear = len(announced) > 1 or len(prose.split()) > _MAX_WORDS or stray
  if unclear or _CHANGING.search(prose) or _CHOICE.search(prose):
    return text, None
  return text, prose
