"""GRPO on a task of reasoning-gym (arXiv 2505.24760), scored by its own verifier."""

from ml_collections import ConfigDict

from experiments.configuration import entry, run_config
from pgax import algorithms
from pgax.data import reasoning_gym
from pgax.rewards import ReasoningGym


def get_config() -> ConfigDict:
  """The config, as absl's `--config` wants it."""
  settings = {"min_terms": 2, "max_terms": 3, "min_digits": 1, "max_digits": 1}
  task = entry(reasoning_gym, name="chain_sum", settings=settings)
  algorithm = entry(algorithms.grpo, epochs=2, minibatches=2)
  config = run_config("chain_sum", task, entry(ReasoningGym), algorithm)
  config.sampling.max_prompt_tokens = 80
  config.sampling.max_tokens = 6
  config.warm_start.steps = 300
  config.warm_start.optimizer.decay_steps = 300
  config.steps, config.eval_every = 60, 5
  return config
