"""Dr. GRPO (arXiv 2503.20783) on three-digit additions.

Command:
  python -m experiments.train --config=experiments/configs/dr_grpo.py --workdir=runs/dr_grpo
Time: not measured yet.
Expect: not measured yet.
"""

from ml_collections import ConfigDict

from experiments.configs import _arithmetic
from experiments.configuration import entry
from pgax import algorithms


def get_config() -> ConfigDict:
  """The config, as absl's `--config` wants it."""
  return _arithmetic.get_config("dr_grpo", entry(algorithms.dr_grpo))
