"""The order of the rooms, read from the imports; see `experiments.imports.ROOMS`."""

import ast
import collections
import io
import sys
import tokenize
from collections.abc import Mapping

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
# The most lines of code of each package. Who raises one says what the lines are for, and
# what became simpler.
LINES = {"pgax": 19_550, "experiments": 5_450}
LAYOUT = {
  tokenize.COMMENT,
  tokenize.NL,
  tokenize.NEWLINE,
  tokenize.INDENT,
  tokenize.DEDENT,
  tokenize.ENDMARKER,
}


def code_lines(source: str) -> int:
  """Counts the lines of code of a module, without docstrings, comments and blank lines."""
  documentation = set()
  for node in ast.walk(ast.parse(source)):
    match getattr(node, "body", None):
      case [ast.Expr(value=ast.Constant(value=str())) as text, *_]:
        documentation |= set(range(text.lineno, text.end_lineno + 1))
  lines = set()
  for token in tokenize.generate_tokens(io.StringIO(source).readline):
    if token.type not in LAYOUT:
      lines |= set(range(token.start[0], token.end[0] + 1))
  return len(lines - documentation)


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


def test_no_package_grows_unnoticed():
  lines = collections.Counter()
  for module, source in SOURCES.items():
    lines[room(module)] += code_lines(source)
  print("\n".join(f"{lines[name]:7,} {name}" for name in ROOMS))  # shown by `pytest -s`
  experiments = lines.pop("experiments")
  assert experiments <= LINES["experiments"]
  assert sum(lines.values()) <= LINES["pgax"]
  assert code_lines('"""A\nb."""\n\n# c\nx = """d\ne"""\n') == 2


def test_imports_follow_the_order_of_the_rooms():
  assert misplaced(GRAPH) == []


def test_modules_import_each_other_in_no_circle():
  assert circle(GRAPH) == []


def knows_the_run(sources: Mapping[str, str]) -> list[str]:
  """Returns modules of pgax below training that name the configuration of a run."""
  above = ("training", "study")  # a study runs the training loop's functions
  below = (m for m in sources if m.startswith("pgax.") and room(m) not in above)
  return sorted(module for module in below if "RunConfig" in sources[module])


def foreign_to_ops(graph: Graph) -> list[str]:
  """Returns modules of ops that import other packages than jax and chex."""
  allowed = {"pgax", "jax", "chex"} | sys.stdlib_module_names
  return sorted(
    module
    for module, others in graph.items()
    if room(module) == "ops" and not {x.split(".")[0] for x in others} <= allowed
  )


def hidden_names(source: str) -> set[str]:
  """Returns names that the package exports and a room hides as soon as it is imported."""
  imports = (x for x in ast.parse(source).body if isinstance(x, ast.ImportFrom))
  others = (x for x in imports if x.module != "pgax")
  return {alias.name for node in others for alias in node.names} & set(ROOMS)


def test_only_training_knows_the_configuration_of_a_run():
  assert knows_the_run(SOURCES) == []
  extra = {"pgax.rollout.extra": "def f(config: RunConfig): ..."}
  assert knows_the_run(SOURCES | extra) == ["pgax.rollout.extra"]


def test_ops_import_jax_and_chex_only():
  assert foreign_to_ops(GRAPH) == []
  graph = import_graph(SOURCES | {"pgax.ops.extra": "import json\nimport optax"})
  assert foreign_to_ops(graph) == ["pgax.ops.extra"]


def test_no_public_name_hides_a_room():
  assert hidden_names(SOURCES["pgax"]) == set()
  assert hidden_names("from pgax.ops import evaluation, kl") == {"evaluation"}


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
