"""The setting of an optimizer; see `config`, which has all the others."""

import dataclasses
import math


def at_least(config: object, minimum: float, *names: str) -> None:
  """Refuses settings below a minimum, and those that are not finite.

  Args:
    config: has the settings.
    minimum: what is allowed.
    *names: theirs.

  Raises:
    ValueError: for the first that is not allowed.
  """
  for name in names:
    value = vars(config)[name]
    if not minimum <= value < math.inf:  # also catches nan
      raise ValueError(f"{name} is {value}; it must be at least {minimum}, and finite")


@dataclasses.dataclass(frozen=True)
class OptimizerConfig:
  """AdamW with linear warm-up, and global-norm clipping.

  Attributes:
    learning_rate: after warm-up.
    warmup_steps: optimizer steps over which it rises linearly from 0.
    decay_steps: optimizer steps after which a cosine has taken it to 0; 0 keeps it
      constant.
    clip_norm: limit of the gradient's global norm.
    b1: decay of the first moment.
    b2: decay of the second moment.
    weight_decay: decoupled decay of matrices.
  """

  learning_rate: float = 1e-4
  warmup_steps: int = 10
  decay_steps: int = 0
  clip_norm: float = 1.0
  b1: float = 0.9
  b2: float = 0.95
  weight_decay: float = 0.0

  def __post_init__(self):
    at_least(self, 0, "learning_rate", "warmup_steps", "decay_steps", "weight_decay")
    if self.decay_steps and self.decay_steps <= self.warmup_steps:
      raise ValueError(
        f"decay_steps is {self.decay_steps}; it must be 0 or above warmup_steps, which is "
        f"{self.warmup_steps}"
      )
    for name in ("b1", "b2"):
      if not 0 <= vars(self)[name] < 1:
        raise ValueError(f"{name} is {vars(self)[name]}; it must be at least 0 and below 1")
    if not self.clip_norm > 0:
      raise ValueError(f"clip_norm is {self.clip_norm}; it must be positive")


def check_decay(optimizer: OptimizerConfig, name: str, updates: int) -> None:
  """Refuses a rate that is 0 before the last optimizer step.

  Args:
    optimizer: the settings.
    name: theirs.
    updates: number of optimizer steps.

  Raises:
    ValueError: it says what to change.
  """
  if 0 < optimizer.decay_steps < updates:
    raise ValueError(
      f"{name}.decay_steps is {optimizer.decay_steps} and it takes {updates} optimizer "
      f"steps; those after the decay would learn nothing. Raise decay_steps to {updates}, "
      "or set it to 0 for no decay"
    )
