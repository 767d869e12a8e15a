"""What a file imports, as Bazel labels: read from the file, not from what it loads."""

import ast
import importlib
import inspect
from pathlib import Path

ROOT = Path(__file__).parents[1]
OURS = ("pgax", "experiments", "tests")
# Import name -> name in the package index, where they differ.
DISTRIBUTIONS = {
  "IPython": "ipython",
  "absl": "absl-py",
  "math_verify": "math-verify",
  "orbax": "orbax-checkpoint",
  "reasoning_gym": "reasoning-gym",
  "tensorflow_datasets": "tensorflow-datasets",
}
STANDARD = frozenset(__import__("sys").stdlib_module_names)


def python_files() -> list[Path]:
  """Every Python file that BUILD must know, relative to the root."""
  files = [path for folder in OURS for path in (ROOT / folder).rglob("*.py")]
  # An empty __init__.py has nothing to depend on; Bazel makes its own.
  return sorted(path.relative_to(ROOT) for path in files if path.read_text().strip())


def label(path: Path) -> str:
  """Bazel label of a file's target: `//folder:file`, or `//folder:folder` of a package."""
  name = path.parent.name if path.name == "__init__.py" else path.stem
  return f"//{path.parent}:{name}"


def module_file(module: str) -> Path | None:
  """The file of a module of ours, or None."""
  base = Path(*module.split("."))
  for path in (base.with_suffix(".py"), base / "__init__.py"):
    if (ROOT / path).is_file():
      return path
  return None


def _imported_modules(tree: ast.AST) -> set[str]:
  modules = set()
  for node in ast.walk(tree):
    if isinstance(node, ast.Import):
      modules |= {alias.name for alias in node.names}
    elif isinstance(node, ast.ImportFrom):
      for alias in node.names:
        inner = f"{node.module}.{alias.name}"
        # A package may export a function of the same name as one of its files.
        ours = node.module.split(".")[0] in OURS and module_file(inner)
        if ours and inspect.ismodule(
          getattr(importlib.import_module(node.module), alias.name, importlib)
        ):
          modules.add(inner)
        else:
          modules.add(node.module)
  return modules


def dependencies(path: Path) -> set[str]:
  """Labels and distributions that a file needs, by its import statements."""
  found = set()
  for module in _imported_modules(ast.parse((ROOT / path).read_text())):
    top = module.split(".")[0]
    if top in OURS:
      target = module_file(module)
      if (ROOT / target).read_text().strip():
        found.add(label(target))
    elif top not in STANDARD:
      found.add(DISTRIBUTIONS.get(top, top))
  return found - {label(path)}
