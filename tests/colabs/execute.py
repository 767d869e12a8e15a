"""Executes a notebook from top to bottom: `python -m tests.colabs.execute NOTEBOOK`.

The first cell that raises ends the program with its error. Cells run in IPython's shell, as
in a kernel, but in this process: the client of a kernel may wait forever for an answer if a
cell shows widgets (https://github.com/jupyter/nbclient/issues/312).
"""

import sys

import matplotlib
import nbformat
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from pgax.training import enable_compilation_cache


def main(path: str) -> None:
  """Executes a notebook.

  Args:
    path: path of the notebook.
  """
  enable_compilation_cache()
  shell = InteractiveShell.instance(config=Config(HistoryManager={"enabled": False}))
  matplotlib.use("inline")  # figures are drawn and encoded, as in a kernel
  for cell in nbformat.read(path, as_version=4).cells:
    if cell.cell_type == "code":
      shell.run_cell(cell.source).raise_error()


if __name__ == "__main__":
  main(sys.argv[1])
