"""Scored rollouts, and the experience that a train step learns from."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jax.sharding import Sharding

from pgax.algorithms import filters
from pgax.data.prompts import PromptBatch
from pgax.distributed.rows import take_rows
from pgax.rollout.metrics import Completions
from pgax.rollout.scoring import RewardResults
from pgax.types import Example, Feedback, Rollout


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


class Summary(NamedTuple):
  """What metrics need of a batch; small, so that batches themselves are not kept.

  Attributes:
    completions: lengths of the completions.
    results: results of the reward function.
    examples: the `N` problems.
    greedy_tokens: number of tokens of the greedy completions.
  """

  completions: Completions
  results: RewardResults
  examples: tuple[Example, ...]
  greedy_tokens: int

  @classmethod
  def of(cls, batch: ScoredRollout) -> "Summary":
    """Returns the summary of a batch."""
    completions = Completions.of(batch.rollout)
    return cls(completions, batch.results, batch.prompts.examples, batch.greedy_tokens)

  @classmethod
  def concatenate(cls, batches: Sequence["Summary"]) -> "Summary":
    """Joins the summaries of several batches."""
    return cls(
      Completions(
        *map(np.concatenate, zip(*(x.completions for x in batches), strict=True))
      ),
      RewardResults.concatenate([x.results for x in batches]),
      tuple(example for x in batches for example in x.examples),
      sum(x.greedy_tokens for x in batches),
    )


def informative_first(
  batches: Sequence[ScoredRollout], sharding: Sharding
) -> ScoredRollout:
  """Selects the first informative groups, and others where there are too few.

  Args:
    batches: batches of `N` prompts each, in order.
    sharding: sharding of the rows of completions.

  Returns:
    A batch of `N` prompts, the informative ones first.
  """
  informative = np.concatenate([x.informative for x in batches])
  rows = np.argsort(~informative, kind="stable")[: len(batches[0].prompts.examples)]
  return ScoredRollout.take(batches, rows, sharding)


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
