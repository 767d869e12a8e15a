"""The learner: experience in, state out; jitted and pure."""

from pgax.learner.compiled import CompiledSteps, compiled_steps
from pgax.learner.config import (
  CriticConfig,
  LearnerConfig,
  OptimizerConfig,
  StepConfig,
  SupervisedConfig,
)
from pgax.learner.learner import Learner, make_learner
from pgax.learner.policy_step import make_policy_step, policy_step
from pgax.learner.state import (
  REINFORCEMENT,
  SUPERVISED,
  TrainState,
  begin_reinforcement,
  init_state,
)
from pgax.learner.update import Update

__all__ = [
  "REINFORCEMENT",
  "SUPERVISED",
  "CompiledSteps",
  "CriticConfig",
  "Learner",
  "LearnerConfig",
  "OptimizerConfig",
  "StepConfig",
  "SupervisedConfig",
  "TrainState",
  "Update",
  "begin_reinforcement",
  "compiled_steps",
  "init_state",
  "make_learner",
  "make_policy_step",
  "policy_step",
]
