"""The default job and every preset learn, to the figures that the README promises.

These take about a minute each and are left out of the test command; see README.md.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from pgax.training.metrics import read_lines

ROOT = Path(__file__).parents[2]
PRESETS = [
  "cispo",
  "dppo",
  "dr_grpo",
  "gmpo",
  "grpo",
  "gspo",
  "maxrl",
  "opo",
  "reinforce",
  "rloo",
  "sapo",
]
RUNS = [*((name, 0) for name in PRESETS), ("grpo", 1), ("grpo", 2)]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "seed"), RUNS)
def test_from_forgetful_to_right(tmp_path, name, seed):
  program = [sys.executable, "-m", "experiments.train", f"--workdir={tmp_path}/run"]
  config = f"--config=experiments/configs/{name}.py"
  subprocess.run([*program, config, f"--config.seed={seed}"], cwd=ROOT, check=True)
  rows = read_lines(tmp_path / "run" / "metrics.jsonl")
  accuracy = [row["eval/accuracy"] for row in rows if "eval/accuracy" in row]
  assert accuracy[0] <= 0.4
  assert accuracy[-1] >= 0.9
