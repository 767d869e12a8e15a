"""Prints the page of comparisons: `python -m experiments.conformance`.

Exits with an error if a number disagrees, or if polgrad is not installed (extra `test`).
"""

import sys
from pathlib import Path

import jax

from experiments.conformance.page import checks, disagreements, page
from pgax.training import enable_compilation_cache


def main() -> int:
  """Computes all checks and prints the page; returns the exit status."""
  jax.config.update("jax_enable_x64", True)
  enable_compilation_cache()
  sections = checks(Path(__file__).parents[2])
  if wrong := disagreements(sections):
    print("pgax disagrees with:", *wrong, sep="\n  ", file=sys.stderr)
    return 1
  print(page(sections), end="")
  return 0


if __name__ == "__main__":
  sys.exit(main())
