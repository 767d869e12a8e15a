"""OPO (arXiv 2505.23585), baseline weighted by length, on three-digit additions.

Command:
  python -m experiments.train --config=experiments/configs/opo.py --workdir=runs/opo
Time: not measured yet.
Expect: not measured yet.
"""

from ml_collections import ConfigDict

from experiments.configs import _arithmetic
from experiments.configuration import entry
from pgax import algorithms


def get_config() -> ConfigDict:
  """The config, as absl's `--config` wants it."""
  return _arithmetic.get_config("opo", entry(algorithms.opo))
