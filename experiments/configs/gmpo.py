"""GMPO (arXiv 2507.20673) on three-digit additions.

Command:
  python -m experiments.train --config=experiments/configs/gmpo.py --workdir=runs/gmpo
Time: about a minute on two server cores (90 s of CPU), once its programs are compiled.
Expect: accuracy of 30 % after the warm start, and 99 % or more after 100 steps.
"""

from ml_collections import ConfigDict

from experiments.configs import _arithmetic
from experiments.configuration import entry
from pgax import algorithms


def get_config() -> ConfigDict:
  """The config, as absl's `--config` wants it."""
  return _arithmetic.get_config("gmpo", entry(algorithms.gmpo))
