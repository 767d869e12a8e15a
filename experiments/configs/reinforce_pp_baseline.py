"""REINFORCE++ with the mean of the group as baseline, on three-digit additions.

Command:
  python -m experiments.train --config=experiments/configs/reinforce_pp_baseline.py --workdir=runs/reinforce_pp_baseline
Time: not measured yet.
Expect: not measured yet.
"""

from ml_collections import ConfigDict

from experiments.configs import _arithmetic
from experiments.configuration import entry
from pgax import algorithms


def get_config() -> ConfigDict:
  """The config, as absl's `--config` wants it."""
  return _arithmetic.get_config(
    "reinforce_pp_baseline", entry(algorithms.reinforce_pp_baseline)
  )
