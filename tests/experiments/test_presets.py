"""The table of presets is generated from the presets, and is the one in the docs."""

import dataclasses
from pathlib import Path

from experiments.preset_runs import command
from experiments.presets import describe, describe_kl, note, other_settings, table
from pgax import algorithms
from pgax.algorithms import filters, parts

DOCS = Path(__file__).parents[2] / "docs" / "presets.md"


def test_docs_are_made_from_the_values():
  assert DOCS.read_text() == table(), "python -m experiments.presets > docs/presets.md"


def test_a_row_for_every_preset():
  rows = [line for line in table().splitlines() if line.startswith("| `")]
  names = [row.split("`")[1] for row in rows]
  presets = [preset.__name__ for preset in algorithms.presets.ALL]
  assert names == presets + [command(name) for name in presets]
  assert [row.count("|") for row in rows] == [10] * len(presets) + [5] * len(presets)


def test_notes_are_those_of_the_docstrings():
  assert note(algorithms.grpo) == "-"
  assert note(algorithms.cispo).startswith("the paper states no bound to copy; 0.28 is")
  assert note(algorithms.vapo) == "-"


def test_parts_in_words():
  assert describe(parts.Clipped(0.1, 0.3)) == "Clipped(clip_low=0.1, clip_high=0.3)"
  assert describe(filters.finished) == "finished"
  assert describe_kl(algorithms.grpo(kl_coef=0.5).kl) == (
    "`k3` in the loss: `FixedController(coef=0.5)`"
  )
  assert "to the old policy, times the ratio" in describe_kl(algorithms.mdpo().kl)
  changed = dataclasses.replace(
    algorithms.grpo(), epochs=3, completion_filter=filters.finished
  )
  assert other_settings(changed) == "completion_filter: `finished`<br>epochs: `3`"
