"""Scored rollouts, and the experience that a train step learns from."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
from jax.sharding import Sharding

from pgax.algorithms import filters
from pgax.data.prompts import PromptBatch
from pgax.distributed.rows import take_rows
from pgax.rollout.scoring import RewardResults
from pgax.types import Feedback, Rollout


@dataclasses.dataclass(frozen=True)
class ScoredRollout:
  """Completions of a batch of prompts, with their rewards.

  Attributes:
    prompts: the `N` prompts.
    rollout: their completions, on the devices.
    results: results of the reward function.
    greedy_rewards: `[N]` reward of each prompt's greedy completion, nan if it could not be
      scored; None without greedy completions.
    greedy_tokens: number of tokens of the greedy completions.
  """

  prompts: PromptBatch
  rollout: Rollout
  results: RewardResults
  greedy_rewards: np.ndarray | None = None
  greedy_tokens: int = 0

  @property
  def informative(self) -> np.ndarray:
    """`[N]` bool, the groups with a learning signal."""
    return np.asarray(filters.informative(self.results.rewards, self.results.valid))

  @staticmethod
  def take(
    batches: Sequence["ScoredRollout"], rows: np.ndarray, sharding: Sharding
  ) -> "ScoredRollout":
    """Selects some prompts of several batches, with their completions.

    Args:
      batches: the batches.
      rows: indices into the prompts of all batches, one after the other.
      sharding: sharding of the rows of completions, which stay on the devices.

    Returns:
      A `ScoredRollout` of these prompts.
    """
    greedy = None
    if batches[0].greedy_rewards is not None:
      greedy = np.concatenate([x.greedy_rewards for x in batches])[rows]
    results = RewardResults.concatenate([x.results for x in batches])
    return ScoredRollout(
      prompts=take_prompts(join_prompts([x.prompts for x in batches]), rows),
      rollout=take_rows([x.rollout for x in batches], rows, sharding),
      results=results.take(rows),
      greedy_rewards=greedy,
    )


def join_prompts(batches: Sequence[PromptBatch]) -> PromptBatch:
  """Joins several batches of prompts."""
  return PromptBatch(
    examples=tuple(example for x in batches for example in x.examples),
    tokens=np.concatenate([x.tokens for x in batches]),
    mask=np.concatenate([x.mask for x in batches]),
  )


def take_prompts(prompts: PromptBatch, rows: np.ndarray) -> PromptBatch:
  """Returns some prompts of a batch, by index."""
  return PromptBatch(
    examples=tuple(prompts.examples[row] for row in rows),
    tokens=prompts.tokens[rows],
    mask=prompts.mask[rows],
  )


@dataclasses.dataclass(frozen=True)
class Experience:
  """What a step learns from: a rollout and its feedback, on the devices.

  Attributes:
    prompts: prompts of the rollout.
    rollout: the completions.
    results: results of the reward function.
    feedback: rewards, as the train step takes them.
    metrics: metrics of everything that was sampled for the step, keyed by their log names.
  """

  prompts: PromptBatch
  rollout: Rollout
  results: RewardResults
  feedback: Feedback
  metrics: Mapping[str, float]
