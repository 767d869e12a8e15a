"""ReMax (arXiv 2310.10505), baseline a greedy completion, on three-digit additions.

Command:
  python -m experiments.train --config=experiments/configs/remax.py --workdir=runs/remax
Time: not measured yet.
Expect: not measured yet.
"""

from ml_collections import ConfigDict

from experiments.configs import _arithmetic
from experiments.configuration import entry
from pgax import algorithms


def get_config() -> ConfigDict:
  """The config, as absl's `--config` wants it."""
  return _arithmetic.get_config("remax", entry(algorithms.remax))
