"""The order of the rooms, read from the imports; see `experiments.imports.ROOMS`."""

import ast
import sys

import pytest

from experiments.imports import (
  PACKAGES,
  ROOMS,
  Graph,
  import_graph,
  read_sources,
  room,
  room_imports,
)

SOURCES = read_sources(*PACKAGES)
GRAPH = import_graph(SOURCES)
# The only rooms that these may import.
ONLY = {
  "sandbox": {"types", "errors"},
  "runs": {"types", "errors", "distributed"},
}
# The rooms that these never import, though they come before.
NEVER = {
  "rollout": {"learner"},
  "learner": {"rollout", "rewards", "data", "tasks"},
  "data": {"rewards"},
}


def misplaced(graph: Graph) -> list[str]:
  """Returns imports that point upward, or into a room that the importer must not know."""
  wrong = []
  for module, others in graph.items():
    here = room(module)
    before = set(ROOMS[: ROOMS.index(here)]) | {here}
    allowed = (ONLY.get(here, before) | {here}) - NEVER.get(here, set())
    ours = (other for other in others if other.split(".")[0] in PACKAGES)
    wrong += [f"{module} imports {other}" for other in ours if room(other) not in allowed]
  return sorted(wrong)


def circle(graph: Graph) -> list[str]:
  """Returns the modules that import each other in a circle, or import such modules."""
  waiting = {module: others & set(graph) for module, others in graph.items()}
  while free := {module for module, others in waiting.items() if not others}:
    waiting = {m: others - free for m, others in waiting.items() if m not in free}
  return sorted(waiting)


def test_every_folder_is_a_room():
  assert set(room_imports(GRAPH)) == set(ROOMS)


def test_imports_follow_the_order_of_the_rooms():
  assert misplaced(GRAPH) == []


def test_modules_import_each_other_in_no_circle():
  assert circle(GRAPH) == []


def test_only_training_knows_the_configuration_of_a_run():
  below = {m for m in GRAPH if m.startswith("pgax.") and room(m) != "training"}
  assert [module for module in below if "RunConfig" in SOURCES[module]] == []


def test_ops_import_jax_and_chex_only():
  for module, others in GRAPH.items():
    if room(module) == "ops":
      foreign = {other.split(".")[0] for other in others} - sys.stdlib_module_names
      assert foreign <= {"pgax", "jax", "chex"}, module


def test_no_public_name_hides_a_room():
  # After `import pgax.evaluation`, that attribute is the room, and hides the name.
  tree = ast.parse(SOURCES["pgax"])
  names = [
    alias.name
    for node in tree.body
    if isinstance(node, ast.ImportFrom) and node.module != "pgax"
    for alias in node.names
  ]
  assert set(names) & set(ROOMS) == set()


@pytest.mark.parametrize(
  ("module", "line"),
  [
    ("pgax.ops.extra", "from pgax.algorithms import loss"),
    ("pgax.ops.extra", "def f():\n  import pgax.training"),
    ("pgax.rollout.extra", "from pgax import learner"),
    ("pgax.learner.extra", "from pgax.data.task import Task"),
    ("pgax.runs.extra", "from pgax.models import DecoderConfig"),
    ("pgax.data.extra", "import pgax.rewards as r"),
    ("pgax.sandbox.extra", "from pgax.ops import kl"),
    ("pgax.training.extra", "from pgax import aggregation"),
    ("pgax.report.extra", "from experiments import program"),
  ],
)
def test_a_misplaced_import_is_reported(module, line):
  (wrong,) = misplaced(import_graph(SOURCES | {module: line}))
  assert wrong.startswith(f"{module} imports ")


def test_a_circle_is_reported():
  extra = {"pgax.ops.a": "from pgax.ops import b", "pgax.ops.b": "import pgax.ops.a"}
  assert circle(import_graph(SOURCES | extra)) == ["pgax.ops.a", "pgax.ops.b"]
