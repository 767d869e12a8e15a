"""Parts that make a supervised loss of a rollout: the likelihood of good completions."""

import dataclasses
import math

import jax.numpy as jnp

from pgax.errors import check_each
from pgax.types import AdvantageInputs, Array, Rollout

__all__ = ["RewardAbove", "UnitAdvantage"]


@dataclasses.dataclass(frozen=True)
class UnitAdvantage:
  """Expert iteration: an advantage of 1, which turns the policy gradient into an NLL."""

  def __call__(self, inputs: AdvantageInputs) -> Array:
    return jnp.ones_like(inputs.rewards)


@dataclasses.dataclass(frozen=True)
class RewardAbove:
  """Expert iteration: selects completions whose unshaped reward exceeds a threshold.

  Attributes:
    threshold: the reward to exceed.
  """

  threshold: float = 0.0

  def __post_init__(self):
    check_each(self, ["threshold"], math.isfinite, "finite")

  def __call__(self, rewards: Array, valid: Array, rollout: Rollout) -> Array:
    del rollout
    return valid & (rewards > self.threshold)
