"""Notebooks run from top to bottom, and keep outputs to be read without running."""

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


def test_there_are_notebooks():
  assert [path.stem for path in NOTEBOOKS] == [
    "advantages",
    "aggregation",
    "clipping",
    "compose_losses",
    "gae",
    "inspect_rollouts",
    "rewards",
  ]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_runs(execute, path):
  done = execute(path)
  assert done.returncode == 0, done.stderr[-3000:]


def test_an_error_is_found(execute, tmp_path):
  cells = [new_code_cell(text) for text in ("x = 0", "1 / x", "print('not reached')")]
  nbformat.write(new_notebook(cells=cells), tmp_path / "wrong.ipynb")
  done = execute(tmp_path / "wrong.ipynb")
  assert done.returncode == 1 and "ZeroDivisionError" in done.stderr
  assert "not reached" not in done.stdout


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_can_be_read_without_running(path):
  cells = nbformat.read(path, as_version=4).cells
  outputs = [output for cell in cells for output in cell.get("outputs", [])]
  assert any("image/png" in output.get("data", {}) for output in outputs)
  assert not any(output.output_type == "error" for output in outputs)
  assert cells[0].cell_type == "markdown"
