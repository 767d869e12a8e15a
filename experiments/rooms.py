"""Draws the rooms of pgax from their imports: `python -m experiments.rooms`.

The picture is SVG; `docs/rooms.svg` is the output of this program, and a test compares the
two. A room is a box with the first line of its docstring and the rooms that it imports, all
of which are below it.
"""

import ast
import itertools
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from xml.sax.saxutils import escape

from experiments.imports import PACKAGES, ROOMS, import_graph, read_sources, room_imports

WIDTH = 900
_GAP = 14  # between boxes
_GAP_OF_SIDES = 110  # between actor and learner
_PADDING = 12  # between the edge of a box and its text
_NAME, _CAPTION, _USES = 17, 13, 12  # font sizes
_EM = 0.56  # width of a character, in font sizes: wide enough for common fonts
_LEADING = 1.3  # distance of lines, in font sizes
_GRAY = "#767676"  # as legible on white as on black
_SIDES = ("rollout", "learner")
# Fill and edge of the rooms that the actor and the learner need, in the order of a row.
_COLORS = {
  (True, False): ("#ffe8cc", "#e8890c"),
  (True, True): ("#e3f4dd", "#4f9d3a"),
  (False, True): ("#d6e8ff", "#2f7de1"),
  (False, False): ("#eceef1", "#8a93a0"),
}
# Every room may import these, so the boxes do not list them.
_GROUND = {"types", "errors"}


def captions(sources: Mapping[str, str]) -> dict[str, str]:
  """Reads the first line of each room's docstring.

  Args:
    sources: source of every module, by its name.

  Returns:
    The line of each room as plain text, without a period.
  """
  lines = {}
  for room in ROOMS:
    source = sources.get(f"pgax.{room}") or sources[room]
    line = ast.get_docstring(ast.parse(source)).partition("\n")[0].rstrip(".")
    head, _, tail = line.partition(": ")
    line = tail if head.lower() == room and tail else line
    lines[room] = (line[0].upper() + line[1:]).replace("`", "")
  return lines


def rows(imports: Mapping[str, set[str]]) -> list[list[str]]:
  """Arranges rooms in rows, each above everything that it imports.

  Args:
    imports: the rooms that each room imports.

  Returns:
    Rows of names from top to bottom. A room is as low as its imports allow; those that only
    programs use are in the row below the programs.
  """
  level = {}
  for room in ROOMS:
    if room in imports:
      level[room] = 1 + max((level[other] for other in imports[room]), default=-1)
  top = level["experiments"]
  for room in level:
    users = {user for user, others in imports.items() if room in others}
    if room != "experiments" and users <= {"experiments"}:
      level[room] = top - 1
  return [[r for r in level if level[r] == height] for height in range(top, -1, -1)]


def needed_by(room: str, imports: Mapping[str, set[str]]) -> set[str]:
  """Returns a room and all rooms that it imports, directly or not."""
  return {room}.union(*(needed_by(other, imports) for other in imports[room]))


def draw(sources: Mapping[str, str]) -> str:
  """Draws the rooms.

  Args:
    sources: source of every module, by its name.

  Returns:
    An SVG document.
  """
  imports = room_imports(import_graph(sources))
  # The package only exports names of its rooms.
  imports = {room: others - {"pgax"} for room, others in imports.items() if room != "pgax"}
  lines = captions(sources)
  actor, learner = (needed_by(side, imports) for side in _SIDES)
  sides = {room: (room in actor, room in learner) for room in imports}
  y, shapes = _GAP, []
  for row in rows(imports):
    row.sort(key=lambda room: list(_COLORS).index(sides[room]))
    gaps = [_GAP_OF_SIDES if pair == _SIDES else _GAP for pair in itertools.pairwise(row)]
    width = (WIDTH - 2 * _GAP - sum(gaps)) / len(row)
    texts = [_box_text(room, lines[room], imports[room] - _GROUND, width) for room in row]
    height = max(map(_text_height, texts)) + 2 * _PADDING
    x = float(_GAP)
    for room, text, gap in zip(row, texts, [*gaps, 0], strict=True):
      fill, edge = _COLORS[sides[room]]
      shapes.append(
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="8" '
        f'fill="{fill}" stroke="{edge}" stroke-width="1.5"/>'
      )
      shapes += _draw_text(text, x + _PADDING, y + _PADDING)
      if gap == _GAP_OF_SIDES:
        shapes += _draw_exchange(x + width, y + height / 2)
      x += width + gap
    y += height + _GAP
  shapes += _draw_legend(y)
  return "\n".join([*_head(y + 3 * _USES * 1.6), *shapes, "</svg>", ""])


# A line of text: its font size, its style and the text.
_Line = tuple[int, str, str]


def _box_text(room: str, caption: str, uses: Iterable[str], width: float) -> list[_Line]:
  lines = [(_NAME, 'font-weight="bold"', room)]
  lines += [(_CAPTION, "", line) for line in _wrap(caption, width, _CAPTION)]
  if uses:
    text = "imports " + ", ".join(sorted(uses, key=ROOMS.index))
    style = 'fill="#4a525c" font-style="italic"'
    lines += [(_USES, style, line) for line in _wrap(text, width, _USES)]
  return lines


def _wrap(text: str, width: float, size: int) -> list[str]:
  return textwrap.wrap(text, int((width - 2 * _PADDING) / (size * _EM)))


def _text_height(lines: Iterable[_Line]) -> float:
  return sum(size * _LEADING for size, _, _ in lines)


def _draw_text(lines: Iterable[_Line], x: float, y: float) -> Iterator[str]:
  for size, style, text in lines:
    y += size * _LEADING
    yield (
      f'<text x="{x:.1f}" y="{y - 0.3 * size:.1f}" font-size="{size}" {style}>'
      f"{escape(text)}</text>"
    )


def _draw_exchange(x: float, y: float) -> Iterator[str]:
  """Draws the arrows between actor and learner."""
  ends = x + 8, x + _GAP_OF_SIDES - 8
  for text, (start, end), offset in (
    ("experience", ends, -14),
    ("parameters", ends[::-1], 14),
  ):
    yield (
      f'<line x1="{start:.1f}" y1="{y + offset:.1f}" x2="{end:.1f}" y2="{y + offset:.1f}" '
      f'stroke="{_GRAY}" stroke-width="1.5" marker-end="url(#arrow)"/>'
    )
    above = y + offset + (-6 if offset < 0 else 15)
    yield (
      f'<text x="{x + _GAP_OF_SIDES / 2:.1f}" y="{above:.1f}" font-size="{_USES}" '
      f'fill="{_GRAY}" text-anchor="middle">{text}</text>'
    )


def _draw_legend(y: float) -> Iterator[str]:
  x = float(_GAP)
  texts = "needed by the actor", "by both", "by the learner", "by neither"
  for (fill, edge), text in zip(_COLORS.values(), texts, strict=True):
    yield (
      f'<rect x="{x:.1f}" y="{y:.1f}" width="13" height="13" rx="3" fill="{fill}" '
      f'stroke="{edge}" stroke-width="1.5"/>'
    )
    yield (
      f'<text x="{x + 20:.1f}" y="{y + 11:.1f}" font-size="{_USES}" fill="{_GRAY}">'
      f"{text}</text>"
    )
    x += 20 + len(text) * _USES * _EM + 20
  yield (
    f'<text x="{_GAP}" y="{y + 35:.1f}" font-size="{_USES}" fill="{_GRAY}">A room imports '
    "only rooms below it; all may import types and errors. Drawn from the imports by "
    "python -m experiments.rooms.</text>"
  )


def _head(height: float) -> Iterator[str]:
  yield (
    f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" '
    f'width="{WIDTH}" height="{height:.0f}" fill="#1b1f24" '
    'font-family="Helvetica, Arial, sans-serif">'
  )
  yield "<title>The rooms of pgax and what they import</title>"
  yield (
    '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
    f'markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="{_GRAY}"/></marker>'
    "</defs>"
  )


if __name__ == "__main__":
  print(draw(read_sources(*PACKAGES)), end="")
