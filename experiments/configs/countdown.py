"""GRPO on countdown: reach a number with three operands, by trying expressions."""

from ml_collections import ConfigDict

from experiments.configuration import entry, run_config
from pgax import algorithms
from pgax.data import countdown
from pgax.rewards import Countdown


def get_config() -> ConfigDict:
  """The config, as absl's `--config` wants it."""
  task = entry(countdown, operands=2, largest=12, patience=0.4, tries=4)
  algorithm = entry(algorithms.grpo, epochs=2, minibatches=2)
  config = run_config("countdown", task, entry(Countdown), algorithm)
  config.sampling.max_prompt_tokens = 14
  config.sampling.max_tokens = 60
  config.warm_start.steps = config.warm_start.optimizer.decay_steps = 2000
  config.steps, config.eval_every = 60, 5
  return config
