"""VAPO (arXiv 2504.05118) on three-digit additions.

Command:
  python -m experiments.train --config=experiments/configs/vapo.py --workdir=runs/vapo
Time: not measured yet.
Expect: not measured yet.
"""

from ml_collections import ConfigDict

from experiments.configs import _arithmetic
from experiments.configuration import entry
from pgax import algorithms


def get_config() -> ConfigDict:
  """The config, as absl's `--config` wants it."""
  return _arithmetic.get_config("vapo", entry(algorithms.vapo))
