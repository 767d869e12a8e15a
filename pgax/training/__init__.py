"""The training loop and all that it needs: state, steps, checkpoints, metrics."""

from pgax.models.lora import LoraConfig
from pgax.training.compilation_cache import enable_compilation_cache
from pgax.training.config import (
  CriticConfig,
  DataConfig,
  MeshConfig,
  OptimizerConfig,
  RewardModelConfig,
  RunConfig,
  SamplingConfig,
  ScoringConfig,
  SupervisedConfig,
)
from pgax.training.errors import UserError
from pgax.training.loop import Result, train
from pgax.training.preference import train_on_preferences
from pgax.training.preference_config import PreferenceConfig
from pgax.training.state import TrainState

__all__ = [
  "CriticConfig",
  "DataConfig",
  "LoraConfig",
  "MeshConfig",
  "OptimizerConfig",
  "PreferenceConfig",
  "Result",
  "RewardModelConfig",
  "RunConfig",
  "SamplingConfig",
  "ScoringConfig",
  "SupervisedConfig",
  "TrainState",
  "UserError",
  "enable_compilation_cache",
  "train",
  "train_on_preferences",
]
