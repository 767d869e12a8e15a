"""A-LoL (arXiv 2305.14718) on three-digit additions.

Command:
  python -m experiments.train --config=experiments/configs/a_lol.py --workdir=runs/a_lol
Time: not measured yet.
Expect: not measured yet.
"""

from ml_collections import ConfigDict

from experiments.configs import _arithmetic
from experiments.configuration import entry
from pgax import algorithms


def get_config() -> ConfigDict:
  """The config, as absl's `--config` wants it."""
  return _arithmetic.get_config("a_lol", entry(algorithms.a_lol))
