"""GRPO on a task of reasoning-gym (arXiv 2505.24760), scored by its own verifier."""

from ml_collections import ConfigDict

from experiments.configuration import entry, run_config
from pgax import algorithms
from pgax.data import reasoning_gym
from pgax.rewards import ReasoningGym


def get_config() -> ConfigDict:
  """The config, as absl's `--config` wants it."""
  settings = {"min_word_len": 3, "max_word_len": 5}
  task = entry(reasoning_gym, name="spell_backward", settings=settings)
  algorithm = entry(algorithms.grpo, epochs=2, minibatches=2)
  config = run_config("spell_backward", task, entry(ReasoningGym), algorithm)
  config.sampling.max_prompt_tokens = 56
  config.sampling.max_tokens = 8
  config.warm_start.steps = config.warm_start.optimizer.decay_steps = 600
  config.steps, config.eval_every = 60, 5
  return config
