"""Parts that make a supervised loss of a rollout: imitate what was good enough."""

import dataclasses
import math

import jax.numpy as jnp

from pgax.types import Array, Rollout, Scored


@dataclasses.dataclass(frozen=True)
class Imitation:
  """An advantage of 1 for every completion: the policy gradient is that of likelihood."""

  def __call__(self, scored: Scored) -> Array:
    return jnp.ones_like(scored.rewards)


@dataclasses.dataclass(frozen=True)
class RewardAbove:
  """Keeps completions whose reward, before any shaping, is above a threshold.

  Attributes:
    threshold: in units of reward.
  """

  threshold: float = 0.0

  def __post_init__(self):
    if not math.isfinite(self.threshold):
      raise ValueError(f"threshold is {self.threshold}; it must be finite")

  def __call__(self, rewards: Array, valid: Array, rollout: Rollout) -> Array:
    del rollout
    return valid & (rewards > self.threshold)
