"""MDPO as in Kimi k1.5 (arXiv 2501.12599) on three-digit additions.

Command:
  python -m experiments.train --config=experiments/configs/mdpo_kimi.py --workdir=runs/mdpo_kimi
Time: not measured yet.
Expect: not measured yet.
"""

from ml_collections import ConfigDict

from experiments.configs import _arithmetic
from experiments.configuration import entry
from pgax import algorithms


def get_config() -> ConfigDict:
  """The config, as absl's `--config` wants it."""
  return _arithmetic.get_config("mdpo_kimi", entry(algorithms.mdpo_kimi))
