"""The settings that all the arithmetic configs share; it is not a config by itself.

Three-digit additions, worked in columns by a pupil who forgets to carry: imitating the
worked solutions leaves a policy that is right where there is nothing to carry, about three
problems in ten. Policy gradients on the answer alone teach it to carry.

Every algorithm goes over a rollout twice, in two halves: with a single optimizer step every
ratio would be 1, and clips and surrogates would all do the same.
"""

from ml_collections import ConfigDict

from experiments.configuration import entry, run_config
from pgax.rewards import final_answer
from pgax.tasks import addition


def get_config(name: str, algorithm: ConfigDict) -> ConfigDict:
  """The addition job with a given algorithm.

  Args:
    name: of the run.
    algorithm: entry of the algorithm.

  Returns:
    A config.
  """
  algorithm.epochs = algorithm.minibatches = 2
  config = run_config(name, entry(addition, forget_carry=0.95), final_answer, algorithm)
  config.steps, config.eval_every = 40, 2
  return config
