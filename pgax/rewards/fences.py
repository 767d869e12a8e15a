"""Fenced blocks in free text."""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

_LEAST = 3


class _Fence(NamedTuple):
  before: str  # what stands in front of it in its line
  length: int
  info: str


class _Block(NamedTuple):
  label: str
  lines: list[str]
  closed: bool


def last_block(text: str, labels: Sequence[str]) -> str | None:
  """The last fenced block of a kind, or else the last one with no label.

  A fence is a line of three or more backticks. One with text behind it opens a block even
  where the one before has not been closed. A block that is still open at the end of the
  text, of a completion that was cut, counts if it has a label. A blank one never counts.

  Args:
    text: free text.
    labels: allowed ones, lower case.

  Returns:
    What stands between the fences; None if there is no such block.
  """
  labelled = plain = None
  for block in _blocks(text, labels):
    inner = "".join(f"{line}\n" for line in block.lines)
    if not inner.strip():
      continue
    if block.label in labels:
      labelled = inner
    elif not block.label and block.closed:
      plain = inner  # what a program prints stands in such blocks too
  return plain if labelled is None else labelled


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
    found = next(filter(None, re.split(r"[\s:{.}]", fence.info.lower())), "")
    # Behind other text, a fence is one only if nothing but a label follows.
    if fence.info if closing else alone or fence.info.lower() in ("", *labels):
      opened, label, lines = fence, found, []
      indent = len(fence.before) if alone else 0
  if opened:
    yield _Block(label, lines, False)


def _fence(line: str) -> _Fence | None:
  line = line.rstrip()
  info = line.rpartition("`")[2]
  ticks = line[: len(line) - len(info)]
  before = ticks.rstrip("`")
  length = len(ticks) - len(before)
  if length < _LEAST or "`" * _LEAST in before:
    return None
  return _Fence(before, length, info.strip())


def _closes(fence: _Fence, opened: _Fence, indent: int) -> bool:
  """Whether it ends a block: at the end of a line, or in front without being indented."""
  if fence.length < opened.length:
    return False
  if fence.before.strip():
    return not fence.info
  return len(fence.before) <= indent + _LEAST
