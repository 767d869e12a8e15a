"""DAPO (arXiv 2503.14476) on three-digit additions.

The buffer of 4 tokens before the limit of 40 does not penalize any correct solution.

Command:
  python -m experiments.train --config=experiments/configs/dapo.py --workdir=runs/dapo
Time: 40 steps at 0.5 s of CPU each on two server cores, after a warm start of half a minute.
Expect: accuracy of 30.5 % after the warm start, and 99.6 % after 40 steps (seed 0).
"""

from ml_collections import ConfigDict

from experiments.configs import _arithmetic
from experiments.configuration import entry
from pgax import algorithms


def get_config() -> ConfigDict:
  """Makes the config."""
  return _arithmetic.get_config("dapo", entry(algorithms.dapo, overlong_buffer=4))
