"""Finds fenced blocks in free text."""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

_MIN_TICKS = 3


class _Fence(NamedTuple):
  before: str  # text before the fence on its line
  length: int
  info: str


class _Block(NamedTuple):
  label: str
  lines: list[str]
  closed: bool


def last_block(text: str, labels: Sequence[str]) -> str | None:
  """Returns the last fenced block with one of the labels, or else the last unlabeled one.

  A fence is a line of three or more backticks. A fence with text after it opens a block
  even if the previous block is not closed. A block that is still open at the end of the
  text, as in a truncated completion, counts if it has a label. Blank blocks never count.

  Args:
    text: free text.
    labels: labels to look for, in lower case.

  Returns:
    The text between the fences; None if there is no such block.
  """
  labeled = plain = None
  for block in _blocks(text, labels):
    inner = "".join(f"{line}\n" for line in block.lines)
    if not inner.strip():
      continue
    if block.label in labels:
      labeled = inner
    elif not block.label and block.closed:
      plain = inner  # may also be the output of a program
  return plain if labeled is None else labeled


def _blocks(text: str, labels: Sequence[str]) -> Iterator[_Block]:
  opened: _Fence | None = None
  label, indent, lines = "", 0, []
  for line in text.split("\n"):
    fence = _fence(line)
    if opened and not (fence and _closes(fence, opened, indent)):
      spaces = min(indent, len(line) - len(line.lstrip(" ")))
      lines.append(line[spaces:].removesuffix("\r"))
      continue
    if fence is None:
      continue
    alone = not fence.before.strip()
    if opened:
      yield _Block(label, lines if alone else [*lines, fence.before], True)
    closing, opened = opened, None
    first_word = next(filter(None, re.split(r"[\s:{.}]", fence.info.lower())), "")
    # After other text on its line, a fence may be followed only by a label.
    if fence.info if closing else alone or fence.info.lower() in ("", *labels):
      opened, label, lines = fence, first_word, []
      indent = len(fence.before) if alone else 0
  if opened:
    yield _Block(label, lines, False)


def _fence(line: str) -> _Fence | None:
  line = line.rstrip()
  info = line.rpartition("`")[2]
  ticks = line[: len(line) - len(info)]
  before = ticks.rstrip("`")
  length = len(ticks) - len(before)
  if length < _MIN_TICKS or "`" * _MIN_TICKS in before:
    return None
  return _Fence(before, length, info.strip())


def _closes(fence: _Fence, opened: _Fence, indent: int) -> bool:
  """Returns whether a fence closes a block: after text, or alone with little indent."""
  if fence.length < opened.length:
    return False
  if fence.before.strip():
    return not fence.info
  return len(fence.before) <= indent + _MIN_TICKS
