"""The drivers: configuration, the training loop and its stages."""

from pgax.data.config import DataConfig
from pgax.distributed.mesh import MeshConfig
from pgax.errors import UserError
from pgax.evaluation.config import EvaluationConfig
from pgax.learner.config import (
  CriticConfig,
  LearnerConfig,
  OptimizerConfig,
  SupervisedConfig,
)
from pgax.learner.state import TrainState
from pgax.models.lora import LoraConfig
from pgax.rollout.config import RewardModelConfig, SamplingConfig, ScoringConfig
from pgax.runs.checkpoint import CheckpointConfig
from pgax.runs.compilation_cache import enable_compilation_cache
from pgax.settings import Entry, entry, with_settings
from pgax.training.build import build
from pgax.training.config import PreferenceConfig, RunConfig
from pgax.training.preferences import train_on_preferences
from pgax.training.progress import Progress
from pgax.training.saved import saved_run, to_json
from pgax.training.train import Result, train

__all__ = [
  "CheckpointConfig",
  "CriticConfig",
  "DataConfig",
  "Entry",
  "EvaluationConfig",
  "LearnerConfig",
  "LoraConfig",
  "MeshConfig",
  "OptimizerConfig",
  "PreferenceConfig",
  "Progress",
  "Result",
  "RewardModelConfig",
  "RunConfig",
  "SamplingConfig",
  "ScoringConfig",
  "SupervisedConfig",
  "TrainState",
  "UserError",
  "build",
  "enable_compilation_cache",
  "entry",
  "saved_run",
  "to_json",
  "train",
  "train_on_preferences",
  "with_settings",
]
