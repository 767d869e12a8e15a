"""BUILD says what the files import, and imports run one way."""

import ast
from pathlib import Path

import pytest

from tests.imports import ROOT, dependencies, label, python_files

FILES = python_files()
# A folder may import from itself and from the folders in its row.
ALLOWED = {
  "pgax/types": set(),
  "pgax/ops": {"pgax/types"},
  "pgax/algorithms": {"pgax/types", "pgax/ops"},
  "pgax/models": {"pgax/types"},
  "pgax/sampling": {"pgax/types", "pgax/ops", "pgax/models"},
  "pgax/rewards": {"pgax/types"},
  "pgax/data": {"pgax/types", "pgax/rewards"},
  "pgax/interop": {"pgax/types", "pgax/data", "pgax/ops"},
  "pgax/report": set(),
}
ALLOWED["pgax/training"] = set(ALLOWED) - {"pgax/report", "pgax/interop"}
ALLOWED["experiments"] = set(ALLOWED)


def _targets() -> dict[str, dict]:
  """Every target of every BUILD file, by its label."""
  targets = {}
  for build in sorted(ROOT.glob("[!.]*/**/BUILD")):
    folder = build.parent.relative_to(ROOT)
    for node in ast.parse(build.read_text()).body:
      call = node.value
      if call.func.id not in ("py_library", "py_test", "py_binary"):
        continue
      fields = {word.arg: word.value for word in call.keywords}
      deps = [_dependency(item, folder) for item in getattr(fields.get("deps"), "elts", [])]
      targets[f"//{folder}:{fields['name'].value}"] = {
        "rule": call.func.id,
        "srcs": [folder / item.value for item in fields["srcs"].elts],
        "deps": deps,
      }
  return targets


def _dependency(item: ast.expr, folder: Path) -> str:
  if isinstance(item, ast.Call):  # requirement("name")
    return item.args[0].value
  if item.value.startswith(":"):
    return f"//{folder}{item.value}"
  return item.value if ":" in item.value else f"{item.value}:{Path(item.value).name}"


TARGETS = _targets()


def test_one_target_a_file():
  assert {target["srcs"][0] for target in TARGETS.values()} == set(FILES)
  assert all(len(target["srcs"]) == 1 for target in TARGETS.values())
  assert set(TARGETS) == {label(path) for path in FILES}


@pytest.mark.parametrize("path", FILES, ids=str)
def test_deps_are_the_imports(path):
  target = TARGETS[label(path)]
  assert len(target["deps"]) == len(set(target["deps"]))
  assert sorted(target["deps"]) == sorted(dependencies(path))
  assert (target["rule"] == "py_test") == path.name.startswith("test_")


def _folder(name: str) -> str:
  parts = name.removeprefix("//").replace(":", "/").split("/")
  return parts[0] if parts[0] != "pgax" else "/".join(parts[:2])


def test_imports_run_one_way():
  for path in FILES:
    folder = _folder(label(path))
    if folder not in ALLOWED or path == Path("pgax/__init__.py"):
      continue
    for dependency in dependencies(path):
      if dependency.startswith("//"):
        other = _folder(dependency)
        assert other in ALLOWED[folder] | {folder}, f"{path} imports {dependency}"


def test_no_circle():
  done, waiting = set(), {label(path): dependencies(path) for path in FILES}
  waiting = {k: {d for d in v if d.startswith("//")} for k, v in waiting.items()}
  while waiting:
    free = {name for name, deps in waiting.items() if deps <= done}
    assert free, f"a circle among {sorted(waiting)}"
    done |= free
    waiting = {name: deps for name, deps in waiting.items() if name not in free}


def test_ops_need_jax_and_chex_only():
  for path in FILES:
    if path.parts[:2] == ("pgax", "ops"):
      third = {d for d in dependencies(path) if not d.startswith("//")}
      assert third <= {"jax", "chex"}, path
