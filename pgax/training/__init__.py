"""The training loop and all that it needs: state, steps, checkpoints, metrics."""

from pgax.training.compilation_cache import enable_compilation_cache
from pgax.training.config import (
  CriticConfig,
  DataConfig,
  MeshConfig,
  OptimizerConfig,
  RunConfig,
  SamplingConfig,
  ScoringConfig,
  WarmStartConfig,
)
from pgax.training.errors import UserError
from pgax.training.loop import Result, train
from pgax.training.state import TrainState

__all__ = [
  "CriticConfig",
  "DataConfig",
  "MeshConfig",
  "OptimizerConfig",
  "Result",
  "RunConfig",
  "SamplingConfig",
  "ScoringConfig",
  "TrainState",
  "UserError",
  "WarmStartConfig",
  "enable_compilation_cache",
  "train",
]
