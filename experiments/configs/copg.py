"""CoPG (arXiv 2406.19185), over pairs, on three-digit additions.

Command:
  python -m experiments.train --config=experiments/configs/copg.py --workdir=runs/copg
Time: not measured yet.
Expect: not measured yet.
"""

from ml_collections import ConfigDict

from experiments.configs import _arithmetic
from experiments.configuration import entry
from pgax import algorithms


def get_config() -> ConfigDict:
  """The config, as absl's `--config` wants it."""
  return _arithmetic.get_config("copg", entry(algorithms.copg))
