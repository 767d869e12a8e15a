"""Notebooks run from top to bottom, and keep outputs to be read without running."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "colabs").glob("*.ipynb"))


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
def test_runs(path):
  notebook = nbformat.read(path, as_version=4)
  NotebookClient(notebook, timeout=None, resources={"metadata": {"path": ROOT}}).execute()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_can_be_read_without_running(path):
  cells = nbformat.read(path, as_version=4).cells
  outputs = [output for cell in cells for output in cell.get("outputs", [])]
  assert any("image/png" in output.get("data", {}) for output in outputs)
  assert not any(output.output_type == "error" for output in outputs)
  assert cells[0].cell_type == "markdown"
