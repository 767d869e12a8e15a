"""DPPO (arXiv 2602.04879) on three-digit additions.

Command:
  python -m experiments.train --config=experiments/configs/dppo.py --workdir=runs/dppo
Time: not measured yet.
Expect: not measured yet.
"""

from ml_collections import ConfigDict

from experiments.configs import _arithmetic
from experiments.configuration import entry
from pgax import algorithms


def get_config() -> ConfigDict:
  """The config, as absl's `--config` wants it."""
  return _arithmetic.get_config("dppo", entry(algorithms.dppo))
