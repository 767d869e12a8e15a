"""The learner: everything that a step depends on, besides arrays."""

import dataclasses

import optax
from jax.sharding import Mesh

from pgax.algorithms import Algorithm
from pgax.distributed.partitioning import batch_shards, training_layout
from pgax.learner.config import LearnerConfig, StepConfig
from pgax.learner.optimizer import make_optimizer
from pgax.models.decoder import Decoder
from pgax.models.heads import ScalarDecoder
from pgax.models.lora import LoraConfig


@dataclasses.dataclass(frozen=True)
class Learner:
  """A policy, the algorithm that improves it, and the optimizers.

  Attributes:
    model: decoder of the policy; the critic's has the same configuration.
    algorithm: policy-gradient algorithm.
    optimizer: optimizer of the policy.
    critic_optimizer: optimizer of the critic; None uses the policy's.
    lora: adapters; with a rank above 0 nothing else of the policy is trained.
    temperature: temperature of the policy.
    config: how updates are computed.
    learn_policy: whether the policy is trained; otherwise only the critic is.
    lanes: number of devices that prompts are sharded over. A microbatch has as many
      completions of each, so that none of them moves.
    prompts: number of prompts to learn from, the first ones of a rollout; those behind them
      fill it up for the devices, and every minibatch gets as many. 0 for all.
  """

  model: Decoder
  algorithm: Algorithm
  optimizer: optax.GradientTransformation
  critic_optimizer: optax.GradientTransformation | None = None
  lora: LoraConfig = LoraConfig()
  temperature: float = 1.0
  config: LearnerConfig = LearnerConfig()
  learn_policy: bool = True
  lanes: int = 1
  prompts: int = 0

  def __post_init__(self):
    if not self.learn_policy and not self.algorithm.critic:
      raise ValueError(
        "learn_policy is False and the algorithm has no critic: nothing would be trained"
      )
    if self.critic_optimizer is None:
      object.__setattr__(self, "critic_optimizer", self.optimizer)

  @property
  def critic(self) -> ScalarDecoder | None:
    """The critic's module; None if the algorithm has no critic."""
    if not self.algorithm.critic:
      return None
    return ScalarDecoder(self.model.config, self.model.layout)

  @property
  def frozen_policies(self) -> tuple[str, ...]:
    """Names of the frozen policies that the state holds."""
    needed = self.algorithm.needs_reference or self.config.keep_reference
    return ("reference",) if needed else ()

  @property
  def reference_dtype(self) -> str:
    """The dtype of the matrices that are not trained."""
    dtype = self.config.reference_dtype
    return self.model.config.compute_dtype if dtype == "auto" else dtype


def make_learner(config: StepConfig, mesh: Mesh | None = None) -> Learner:
  """Builds the learner of the reinforcement stage.

  Args:
    config: step settings.
    mesh: mesh of devices that steps run on; None for one device.

  Returns:
    A `Learner`.
  """
  return Learner(
    model=Decoder(config.model, layout=mesh and training_layout(mesh)),
    algorithm=config.algorithm,
    optimizer=make_optimizer(config.optimizer),
    critic_optimizer=make_optimizer(config.critic_optimizer),
    lora=config.lora,
    temperature=config.temperature,
    config=config.learner,
    lanes=batch_shards(mesh) if mesh else 1,
    prompts=config.prompts,
  )
