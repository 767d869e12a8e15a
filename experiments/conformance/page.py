"""The page of all comparisons, in Markdown."""

from pathlib import Path

from experiments.conformance import nemo, polgrad_losses, rlax_numbers, trainers
from experiments.conformance.check import Check

# What the page states before the numbers. Its lines were checked against the sources of the
# other libraries at the commits that it names, those of presets by running their losses.
_TEXT = Path(__file__).with_name("page.md")


def checks(root: Path) -> dict[str, list[Check]]:
  """Computes all checks.

  Args:
    root: folder of the repository.

  Returns:
    Checks by the title of their section.
  """
  return {
    "NVIDIA NeMo RL: goldens of the clipped loss": nemo.checks(root),
    "polgrad: losses of presets": polgrad_losses.checks(),
    "rlax: worked numbers": rlax_numbers.checks(),
    "TRL: numbers in its tests": trainers.trl_checks(),
    "verl: numbers in its tests": trainers.verl_checks(),
    "NeMo RL: numbers in its tests": trainers.nemo_checks(),
  }


def disagreements(sections: dict[str, list[Check]]) -> list[str]:
  """Returns the checks that fail, as `section: case`."""
  return [
    f"{title}: {check.case}"
    for title, rows in sections.items()
    for check in rows
    if not check.agrees()
  ]


def page(sections: dict[str, list[Check]]) -> str:
  """Returns the page.

  Args:
    sections: checks that agree, by the title of their section.

  Returns:
    Markdown.
  """
  parts = [_TEXT.read_text()]
  for title, rows in sections.items():
    cells = [
      (check.case, check.call, f"{check.rtol:.0e}" if check.rtol else "0") for check in rows
    ]
    parts += [f"## {title}\n", _table(("theirs", "pgax", "allowed"), cells)]
  return "\n".join(parts)


def _table(columns, rows) -> str:
  lines = [columns, ["---"] * len(columns), *rows]
  return "".join(f"| {' | '.join(line)} |\n" for line in lines)
