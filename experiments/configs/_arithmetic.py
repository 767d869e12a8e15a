"""Settings shared by the configs of three-digit addition; not a config by itself.

The demonstrator works in columns and forgets to carry. A policy that imitates it is right if
there is nothing to carry, in about three problems of ten. Policy gradients on the answer
alone teach it to carry.

Every algorithm makes two passes over a rollout, in two minibatches each. With a single
optimizer step every ratio would be 1, and all clips and surrogates would be the same.
"""

from ml_collections import ConfigDict

from experiments.configs._warm_start import warm_start
from experiments.configuration import entry, run_config
from pgax.rewards import final_answer
from pgax.tasks import addition


def get_config(name: str, algorithm: ConfigDict) -> ConfigDict:
  """Makes the addition job with a given algorithm.

  Args:
    name: name of the run.
    algorithm: entry of the algorithm.

  Returns:
    A config.
  """
  algorithm.epochs = algorithm.minibatches = 2
  config = run_config(name, entry(addition, forget_carry=0.95), final_answer, algorithm)
  set_lengths(config)
  warm_start(config, steps=1000)
  config.steps, config.evaluation.every = 40, 2
  return config


def set_lengths(config: ConfigDict) -> None:
  """Sets the length limits of three-digit additions, in bytes."""
  config.sampling.max_prompt_tokens = 9
  config.sampling.max_completion_tokens = 40
