"""Dr. GRPO on three-digit additions (arXiv 2503.20783; no division by deviation or length, no KL penalty).

Command: `python -m experiments.train --config=experiments/configs/dr_grpo.py --workdir=runs/dr_grpo`
Time: TIME.
Expect: SCORE.
"""

from ml_collections import ConfigDict

from experiments.configs import arithmetic
from experiments.configuration import entry
from pgax import algorithms


def get_config() -> ConfigDict:
  """The config, as absl's `--config` wants it."""
  return arithmetic.get_config("dr_grpo", entry(algorithms.dr_grpo))
