"""The supervised start shared by configs of small models; not a config by itself."""

from ml_collections import ConfigDict


def warm_start(config: ConfigDict, steps: int) -> None:
  """Sets supervised training of a small model from scratch, with a cosine decay.

  Args:
    config: config of a run.
    steps: number of supervised steps.
  """
  config.supervised.steps = steps
  config.supervised.optimizer.learning_rate = 3e-3
  config.supervised.optimizer.warmup_steps = 20
  config.supervised.optimizer.decay_steps = steps
