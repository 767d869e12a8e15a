"""The default job and every preset learn, to the figures that the README states.

They take many minutes, so they are left out of the test command; see README.md.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from experiments.compare import compare
from pgax.algorithms import presets
from pgax.runs.json_lines import read_lines

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_default_job_from_forgetful_to_right(tmp_path):
  program = [sys.executable, "-m", "experiments.train", f"--workdir={tmp_path}/run"]
  subprocess.run(program, cwd=ROOT, check=True)
  rows = read_lines(tmp_path / "run" / "metrics.jsonl")
  accuracy = [row["eval/accuracy"] for row in rows if "eval/accuracy" in row]
  assert accuracy[0] <= 0.4
  assert accuracy[-1] >= 0.97


@pytest.mark.slow
def test_every_preset_learns_from_the_same_warm_start(tmp_path):
  results = compare(tmp_path, {preset.__name__: [0] for preset in presets.ALL})
  for name, (metrics,) in results.items():
    assert metrics["accuracy"] >= 0.9, name
    assert metrics["completions"] is not None, name
