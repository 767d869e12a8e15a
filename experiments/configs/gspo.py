"""GSPO (arXiv 2507.18071), one ratio a sequence, on three-digit additions.

Command:
  python -m experiments.train --config=experiments/configs/gspo.py --workdir=runs/gspo
Time: not measured yet.
Expect: not measured yet.
"""

from ml_collections import ConfigDict

from experiments.configs import _arithmetic
from experiments.configuration import entry
from pgax import algorithms


def get_config() -> ConfigDict:
  """The config, as absl's `--config` wants it."""
  return _arithmetic.get_config("gspo", entry(algorithms.gspo))
