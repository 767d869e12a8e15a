"""The actor: parameters in, experience out."""

from pgax.rollout.actor import Actor
from pgax.rollout.config import RewardModelConfig, SamplingConfig, ScoringConfig
from pgax.rollout.experience import Experience, ScoredRollout
from pgax.rollout.sampler import Sampler, make_sampler
from pgax.rollout.samples import Sample, make_samples
from pgax.rollout.scoring import RewardResults, open_reward_runner, score_rollout

__all__ = [
  "Actor",
  "Experience",
  "RewardModelConfig",
  "RewardResults",
  "Sample",
  "Sampler",
  "SamplingConfig",
  "ScoredRollout",
  "ScoringConfig",
  "make_sampler",
  "make_samples",
  "open_reward_runner",
  "score_rollout",
]
