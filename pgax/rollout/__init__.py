"""The actor: parameters in, experience out."""

from pgax.rollout.config import RewardModelConfig, SamplingConfig, ScoringConfig
from pgax.rollout.experience import Experience, ScoredRollout
from pgax.rollout.lagged import Lagged
from pgax.rollout.rollouts import Rollouts
from pgax.rollout.sampler import Sampler, make_sampler
from pgax.rollout.samples import Sample, make_samples
from pgax.rollout.scoring import RewardResults, open_reward_runner, score_rollout
from pgax.rollout.source import Batches, CheckedIterator, Source, SourceState
from pgax.rollout.stored import Stored

__all__ = [
  "Batches",
  "CheckedIterator",
  "Experience",
  "Lagged",
  "RewardModelConfig",
  "RewardResults",
  "Rollouts",
  "Sample",
  "Sampler",
  "SamplingConfig",
  "ScoredRollout",
  "ScoringConfig",
  "Source",
  "SourceState",
  "Stored",
  "make_sampler",
  "make_samples",
  "open_reward_runner",
  "score_rollout",
]
