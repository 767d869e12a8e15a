"""Notebooks run from top to bottom, and have saved outputs."""

from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from tests.forked import open_programs

NOTEBOOKS = sorted((Path(__file__).parents[2] / "colabs").glob("*.ipynb"))


@pytest.fixture(scope="module")
def execute():
  with open_programs() as programs:
    yield lambda path: programs("tests.colabs.execute", path)


def test_all_notebooks_are_tested():
  assert [path.stem for path in NOTEBOOKS] == [
    "advantages",
    "aggregation",
    "clipping",
    "compose_losses",
    "cs336",
    "gae",
    "inspect_rollouts",
    "kl",
    "off_policy",
    "rewards",
    "value_learning",
  ]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_runs(execute, path):
  result = execute(path)
  assert result.returncode == 0, result.stderr[-3000:]


def test_an_error_is_reported(execute, tmp_path):
  cells = [new_code_cell(text) for text in ("x = 0", "1 / x", "print('not reached')")]
  nbformat.write(new_notebook(cells=cells), tmp_path / "wrong.ipynb")
  result = execute(tmp_path / "wrong.ipynb")
  assert result.returncode == 1 and "ZeroDivisionError" in result.stderr
  assert "not reached" not in result.stdout


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_has_saved_outputs(path):
  cells = nbformat.read(path, as_version=4).cells
  outputs = [output for cell in cells for output in cell.get("outputs", [])]
  assert any("image/png" in output.get("data", {}) for output in outputs)
  assert not any(output.output_type == "error" for output in outputs)
  assert cells[0].cell_type == "markdown"
