"""SAPO (arXiv 2511.20347) on three-digit additions.

Command:
  python -m experiments.train --config=experiments/configs/sapo.py --workdir=runs/sapo
Time: not measured yet.
Expect: not measured yet.
"""

from ml_collections import ConfigDict

from experiments.configs import _arithmetic
from experiments.configuration import entry
from pgax import algorithms


def get_config() -> ConfigDict:
  """The config, as absl's `--config` wants it."""
  return _arithmetic.get_config("sapo", entry(algorithms.sapo))
