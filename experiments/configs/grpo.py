"""GRPO (arXiv 2402.03300) on three-digit additions: the default job.

Command:
  python -m experiments.train --config=experiments/configs/grpo.py --workdir=runs/grpo
Time: not measured yet.
Expect: not measured yet.
"""

from ml_collections import ConfigDict

from experiments.configs import _arithmetic
from experiments.configuration import entry
from pgax import algorithms


def get_config() -> ConfigDict:
  """The config, as absl's `--config` wants it."""
  return _arithmetic.get_config("grpo", entry(algorithms.grpo))
