"""REINFORCE with the mean of the batch as baseline on three-digit additions (Williams 1992; no KL penalty).

Command: `python -m experiments.train --config=experiments/configs/reinforce.py --workdir=runs/reinforce`
Time: TIME.
Expect: SCORE.
"""

from ml_collections import ConfigDict

from experiments.configs import arithmetic
from experiments.configuration import entry
from pgax import algorithms


def get_config() -> ConfigDict:
  """The config, as absl's `--config` wants it."""
  return arithmetic.get_config("reinforce", entry(algorithms.reinforce))
