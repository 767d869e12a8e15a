"""Supervised fine-tuning alone: three-digit additions from worked solutions, packed.

As the other jobs, but the demonstrator never forgets to carry and no reinforcement learning
follows: the algorithm is ignored.

Command:
  python -m experiments.train --config=experiments/configs/sft.py --workdir=runs/sft
Time: 1000 steps and 11 evaluations in a minute of CPU on two server cores.
Expect: accuracy of 99.6 % after 1000 steps (seeds 0, 1), with 7 % of the rows empty.
"""

from ml_collections import ConfigDict

from experiments.configs._arithmetic import set_lengths
from experiments.configs._warm_start import warm_start
from experiments.configuration import entry, run_config
from pgax import algorithms
from pgax.rewards import final_answer
from pgax.tasks import addition


def get_config() -> ConfigDict:
  """Makes the config."""
  config = run_config("sft", entry(addition), final_answer, entry(algorithms.grpo))
  set_lengths(config)
  warm_start(config, steps=1000)
  stage = config.supervised
  stage.batch_size, stage.row_tokens = 8, 168  # four solutions in a row
  stage.eval_every = 100
  config.steps = 0
  return config
