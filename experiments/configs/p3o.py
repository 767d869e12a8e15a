"""P3O (arXiv 2310.00212), over pairs, on three-digit additions.

Command:
  python -m experiments.train --config=experiments/configs/p3o.py --workdir=runs/p3o
Time: not measured yet.
Expect: not measured yet.
"""

from ml_collections import ConfigDict

from experiments.configs import _arithmetic
from experiments.configuration import entry
from pgax import algorithms


def get_config() -> ConfigDict:
  """The config, as absl's `--config` wants it."""
  return _arithmetic.get_config("p3o", entry(algorithms.p3o))
