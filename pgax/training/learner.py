"""What learns, and how: everything that decides the shape of the state."""

import dataclasses

import optax

from pgax.algorithms import Algorithm
from pgax.models.decoder import Decoder
from pgax.models.heads import Critic
from pgax.models.lora import LoraConfig


@dataclasses.dataclass(frozen=True)
class Learner:
  """A policy, the algorithm that improves it, and the optimizers.

  Attributes:
    model: the policy's decoder; the critic has one of the same configuration.
    algorithm: what to optimise.
    optimizer: of the policy.
    critic_optimizer: of the critic; None takes the policy's settings.
    lora: of the adapters; with them they are all that learns of the policy.
  """

  model: Decoder
  algorithm: Algorithm
  optimizer: optax.GradientTransformation
  critic_optimizer: optax.GradientTransformation | None = None
  lora: LoraConfig = LoraConfig()

  @property
  def critic(self) -> Critic | None:
    """The critic's module; None where the algorithm has none."""
    return Critic(self.model.config) if self.algorithm.critic else None

  @property
  def value_optimizer(self) -> optax.GradientTransformation:
    """The optimizer that the critic learns with."""
    return self.critic_optimizer or self.optimizer
