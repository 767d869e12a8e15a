"""The default job learns to the figures that the README states, and every preset learns.

They take many minutes, so they are left out of the test command; see README.md.
"""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from experiments.preset_runs import preset_config
from pgax.algorithms import presets
from pgax.data import byte_tokenizer
from pgax.runs.json_lines import read_lines
from pgax.settings import settings_of
from pgax.training import to_json, train, with_settings

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_default_job_from_forgetful_to_right(tmp_path):
  program = [sys.executable, "-m", "experiments.train", f"--workdir={tmp_path}/run"]
  # As a user runs it, without the settings of conftest.py.
  changed = ("XLA_FLAGS", "JAX_DISABLE_MOST_OPTIMIZATIONS")
  environment = {name: x for name, x in os.environ.items() if name not in changed}
  subprocess.run(program, cwd=ROOT, env=environment, check=True)
  rows = read_lines(tmp_path / "run" / "metrics.jsonl")
  accuracy = [row["eval/accuracy"] for row in rows if "eval/accuracy" in row]
  assert accuracy[0] <= 0.4
  assert accuracy[-1] >= 0.97


def brief(name):
  """A preset's run with less pretraining of the critic and fewer held-out problems."""
  config = with_settings(preset_config(name), {"evaluation.problems": 64})
  if "pretraining" in settings_of(config.algorithm):
    config = with_settings(config, {"algorithm.pretraining": 2})
  return config


@pytest.mark.slow
def test_every_preset_learns_from_the_same_warm_start(tmp_path):
  tokenizer, warm = byte_tokenizer(), tmp_path / "warm"
  start = dataclasses.replace(brief("grpo"), steps=0)
  train(start, tokenizer, warm, to_json(start), progress=False)
  for name in [preset.__name__ for preset in presets.ALL]:
    changes = {"supervised.steps": 0, "init_from_run": str(warm)}
    changes |= {"steps": 8, "evaluation.every": 8}
    train(with_settings(brief(name), changes), tokenizer, tmp_path / name, progress=False)
    rows = read_lines(tmp_path / name / "metrics.jsonl")
    assert rows[0]["eval/accuracy"] <= 0.4, name
    assert rows[-1]["eval/accuracy"] >= 0.6, name
    jax.clear_caches()  # programs of other presets are not needed again
