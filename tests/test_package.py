"""The package: what it exports, what it loads, and what the README states."""

import ast
import subprocess
import sys
from pathlib import Path

import pgax
from experiments.imports import python_files

ROOT = Path(__file__).parents[1]
PRESETS = (
  "reinforce",
  "rloo",
  "grpo",
  "dr_grpo",
  "gspo",
  "gmpo",
  "cispo",
  "sapo",
  "dppo",
  "opo",
  "maxrl",
)


def test_exports_are_explicit_and_there():
  for module in (pgax, pgax.algorithms, pgax.models, pgax.sampling):
    assert sorted(module.__all__) == sorted(set(module.__all__))
    assert all(hasattr(module, name) for name in module.__all__)


def test_fixed_names_are_there():
  for module, names in {
    pgax.returns: (
      "discounted_returns",
      "td_errors",
      "n_step_advantages",
      "gae",
      "length_adaptive_lambda",
    ),
    pgax.advantages: (
      "rloo",
      "grpo",
      "dr_grpo",
      "remax",
      "opo",
      "maxrl",
      "grpo_process",
      "whiten",
    ),
    pgax.values: ("value_loss",),
    pgax.kl: ("k1", "k2", "k3", "exact", "FixedController", "AdaptiveController"),
    pgax.surrogates: ("policy_gradient", "clipped", "gspo", "cispo", "sapo"),
    pgax.aggregation: ("sequence_mean", "token_mean", "fixed_length", "sequence_sum"),
    pgax.algorithms: ("Algorithm", *PRESETS),
  }.items():
    assert all(callable(getattr(module, name)) for name in names)


def test_neither_tensorflow_nor_torch_is_loaded():
  # Torch is there for the tests alone, and tensorboardX takes it where it finds it; so it
  # is hidden, and whoever needed it would fail.
  program = (
    "import sys; sys.modules['torch'] = None\n"
    "import experiments.evaluate, pgax.models.hf, pgax.report, pgax.training\n"
    "print(sorted({'tensorflow', 'clu', 'rlax'} & set(sys.modules)))"
  )
  done = subprocess.run(
    [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
  )
  assert done.stdout.strip() == "[]"


def test_ci_runs_the_command_of_the_readme():
  readme, ci = ((ROOT / name).read_text() for name in ("README.md", ".ci/run"))
  assert "@@" not in readme  # a number that was never filled in
  commands = [line for line in readme.splitlines() if "-m pytest" in line]
  assert len(commands) >= 1 and commands[0] in ci.splitlines()


def test_files_can_be_read_in_one_sitting():
  files = python_files("pgax", "experiments", "tests")
  sizes = {path: len((ROOT / path).read_text().splitlines()) for path in files}
  assert {path: size for path, size in sizes.items() if size > 400} == {}


def test_public_functions_are_documented():
  for path in python_files("pgax"):
    for node in ast.parse((ROOT / path).read_text()).body:
      if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
        text = ast.get_docstring(node) or ""
        assert text, f"{path}: {node.name}"
        if path.parts[1] == "ops" and node.args.args:
          assert "Args:" in text, f"{path}: {node.name}"
          nothing = isinstance(node.returns, ast.Constant) and node.returns.value is None
          assert nothing or "Returns:" in text, f"{path}: {node.name}"
