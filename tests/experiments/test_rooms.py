"""The picture of the rooms is drawn from the imports, and is the one in the docs."""

from pathlib import Path
from xml.etree import ElementTree

from experiments.imports import (
  PACKAGES,
  ROOMS,
  import_graph,
  read_sources,
  room_imports,
)
from experiments.rooms import WIDTH, draw, rows

SOURCES = read_sources(*PACKAGES)
DOCS = Path(__file__).parents[2] / "docs"


def test_the_picture_in_the_docs_is_what_the_program_prints():
  assert (DOCS / "rooms.svg").read_text() == draw(SOURCES), (
    "python -m experiments.rooms > docs/rooms.svg"
  )


def test_every_room_is_drawn_above_what_it_imports():
  imports = room_imports(import_graph(SOURCES))
  height = {room: -i for i, row in enumerate(rows(imports)) for room in row}
  assert set(height) == set(ROOMS)
  assert all(height[a] > height[b] for a, others in imports.items() for b in others)
  assert height["rollout"] == height["learner"]


def test_a_new_import_changes_the_picture():
  changed = SOURCES | {"pgax.data.extra": "import pgax.models"}
  assert draw(changed) != draw(SOURCES) == draw(SOURCES)


def test_boxes_are_inside_of_the_picture():
  boxes = ElementTree.fromstring(draw(SOURCES)).iter("{http://www.w3.org/2000/svg}rect")
  right = [float(box.get("x")) + float(box.get("width")) for box in boxes]
  assert len(right) > len(ROOMS) and max(right) < WIDTH
