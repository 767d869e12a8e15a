"""BUILD files: one target a room, whose dependencies are what its files import."""

import ast
import sys
from pathlib import Path

from experiments.imports import ROOT, import_graph, module_name, python_files, read_sources

PACKAGES = ("pgax", "experiments", "tests")
GRAPH = import_graph(read_sources(*PACKAGES))
# Import name -> name in the package index, where they differ.
DISTRIBUTIONS = {
  "IPython": "ipython",
  "absl": "absl-py",
  "math_verify": "math-verify",
  "mlflow": "mlflow-skinny",
  "orbax": "orbax-checkpoint",
  "reasoning_gym": "reasoning-gym",
  "tensorflow_datasets": "tensorflow-datasets",
}


def folder(path: Path) -> Path:
  """Returns the folder whose BUILD file has a file: the room, not its subfolders."""
  depth = 1 if path.parts[0] == "experiments" else 2
  return Path(*path.parts[:-1][:depth])


def label(path: Path) -> str:
  """Returns the target of a file. Files beside the rooms have their own in pgax."""
  beside = folder(path) == Path("pgax") and path.name != "__init__.py"
  return f"//{folder(path)}:{path.stem}" if beside else f"//{folder(path)}"


LABELS = {module_name(path): label(path) for path in python_files(*PACKAGES)}


def imported() -> dict[str, set[str]]:
  """Returns the dependencies of every target, by the imports of its files."""
  deps = {target: set() for target in LABELS.values()}
  for module, others in GRAPH.items():
    for other in others:
      top = other.split(".")[0]
      if other in LABELS:
        deps[LABELS[module]].add(LABELS[other])
      elif top not in PACKAGES and top not in sys.stdlib_module_names:
        deps[LABELS[module]].add(DISTRIBUTIONS.get(top, top))
  return {target: others - {target} for target, others in deps.items()}


def written() -> dict[str, list[str]]:
  """Returns the dependencies of every target, by the BUILD files."""
  deps = {}
  for package in PACKAGES:
    for build in (ROOT / package).rglob("BUILD"):
      where = build.parent.relative_to(ROOT)
      for statement in ast.parse(build.read_text()).body:
        call = statement.value
        if call.func.id == "py_library":
          fields = {word.arg: word.value for word in call.keywords}
          name = fields["name"].value
          target = f"//{where}" if name == where.name else f"//{where}:{name}"
          # requirement("name"), or the label of a target.
          items = getattr(fields.get("deps"), "elts", [])
          deps[target] = [getattr(item, "args", [item])[0].value for item in items]
  return deps


def test_one_target_a_room():
  assert set(written()) == set(LABELS.values())


def test_dependencies_are_the_imports():
  deps, expected = written(), imported()
  assert all(len(others) == len(set(others)) for others in deps.values())
  add = {target: expected[target] - set(deps[target]) for target in expected}
  remove = {target: set(deps[target]) - expected[target] for target in expected}
  assert {target: labels for target, labels in add.items() if labels} == {}
  assert {target: labels for target, labels in remove.items() if labels} == {}


def test_targets_form_no_circle():
  waiting = {target: set(deps) & set(LABELS.values()) for target, deps in written().items()}
  while free := {target for target, deps in waiting.items() if not deps}:
    waiting = {t: deps - free for t, deps in waiting.items() if t not in free}
  assert waiting == {}
