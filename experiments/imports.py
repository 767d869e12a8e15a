"""Reads from the source which module imports which, without running any of it."""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("pgax", "experiments")
# The rooms from the ground up: a room imports only from rooms before it. `pgax` is the
# package itself, which exports names of its rooms.
ROOMS = (
  "types",
  "errors",
  "settings",
  "ops",
  "algorithms",
  "models",
  "sampling",
  "sandbox",
  "rewards",
  "data",
  "tasks",
  "distributed",
  "runs",
  "rollout",
  "learner",
  "evaluation",
  "training",
  "study",
  "report",
  "interop",
  "pgax",
  "experiments",
)
# The imports of every module, such as `{"pgax.runs.workdir": {"json", "pgax.errors"}}`.
Graph = Mapping[str, set[str]]


def python_files(*packages: str) -> list[Path]:
  """Lists the Python files of packages, relative to the root of the repository.

  Args:
    *packages: names of top-level folders.

  Returns:
    Paths, sorted; empty files are left out.
  """
  files = [path for package in packages for path in (ROOT / package).rglob("*.py")]
  return sorted(path.relative_to(ROOT) for path in files if path.read_text().strip())


def module_name(path: Path) -> str:
  """Returns the name of the module in a file, given relative to the root."""
  return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def room(module: str) -> str:
  """Returns the room of a module of pgax or experiments."""
  package, *inner = module.split(".")
  return inner[0] if package == "pgax" and inner else package


def read_sources(*packages: str) -> dict[str, str]:
  """Reads the source of every module of packages, by its name."""
  return {module_name(p): (ROOT / p).read_text() for p in python_files(*packages)}


def import_graph(sources: Mapping[str, str]) -> dict[str, set[str]]:
  """Reads the imports of modules, those inside functions included.

  Args:
    sources: source of every module, by its name.

  Returns:
    For each module the modules that it imports. `from package import name` imports the
    module `package.name` if there is one, unless the package gives the name to something
    else.
  """
  trees = {name: ast.parse(text) for name, text in sources.items()}
  names = {name: set(_names_from_elsewhere(tree, name)) for name, tree in trees.items()}
  graph = {}
  for module, tree in trees.items():
    imports = set()
    for node in ast.walk(tree):
      if isinstance(node, ast.Import):
        imports |= {alias.name for alias in node.names}
      elif isinstance(node, ast.ImportFrom):
        for alias in node.names:
          inner = f"{node.module}.{alias.name}"
          is_module = inner in sources and alias.name not in names.get(node.module, ())
          imports.add(inner if is_module else node.module)
    graph[module] = imports - {module}
  return graph


def _names_from_elsewhere(tree: ast.Module, module: str) -> Iterator[str]:
  """Yields the names in a module that it imports from other modules or defines."""
  for node in tree.body:
    if isinstance(node, ast.ImportFrom) and node.module != module:
      yield from (alias.asname or alias.name for alias in node.names)
    elif isinstance(node, ast.FunctionDef | ast.ClassDef):
      yield node.name


def room_imports(graph: Graph) -> dict[str, set[str]]:
  """Returns for each room the other rooms that it imports."""
  imports = {room(module): set() for module in graph}
  for module, others in graph.items():
    ours = {room(other) for other in others if other.split(".")[0] in PACKAGES}
    imports[room(module)] |= ours - {room(module)}
  return imports
