"""Scored rollouts, and the experience that a train step learns from."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
from jax.sharding import Sharding

from pgax.algorithms import filters
from pgax.data.prompts import PromptBatch, join_prompts
from pgax.distributed.placement import take_rows
from pgax.rollout.metrics import Completions
from pgax.rollout.scoring import RewardResults
from pgax.types import Feedback, Rollout


@dataclasses.dataclass(frozen=True)
class ScoredRollout:
  """Completions of a batch of prompts, with their rewards.

  Attributes:
    prompts: the `N` prompts.
    rollout: their completions, on the devices; None once only metrics are needed.
    results: results of the reward function.
    completions: lengths of the completions, on the host.
    greedy_rewards: `[N]` reward of each prompt's greedy completion, nan if it could not be
      scored; None without greedy completions.
    greedy_tokens: number of tokens of the greedy completions.
  """

  prompts: PromptBatch
  rollout: Rollout | None
  results: RewardResults
  completions: Completions
  greedy_rewards: np.ndarray | None = None
  greedy_tokens: int = 0

  @property
  def informative(self) -> np.ndarray:
    """`[N]` bool, the groups with a learning signal."""
    return np.asarray(filters.informative(self.results.rewards, self.results.valid))


def informative_first(
  batches: Sequence[ScoredRollout], sharding: Sharding
) -> ScoredRollout:
  """Selects the first informative groups, and others where there are too few.

  Args:
    batches: batches of `N` prompts each, in order.
    sharding: sharding of the rows of completions, which stay on the devices.

  Returns:
    A batch of `N` prompts, the informative ones first.
  """
  informative = np.concatenate([x.informative for x in batches])
  rows = np.argsort(~informative, kind="stable")[: len(batches[0].prompts.examples)]
  greedy = None
  if batches[0].greedy_rewards is not None:
    greedy = np.concatenate([x.greedy_rewards for x in batches])[rows]
  return ScoredRollout(
    prompts=join_prompts([x.prompts for x in batches]).take(rows),
    rollout=take_rows([x.rollout for x in batches], rows, sharding),
    results=RewardResults.concatenate([x.results for x in batches]).take(rows),
    completions=batches[-1].completions,  # already counted
    greedy_rewards=greedy,
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

  @property
  def arrays(self) -> dict[str, Rollout | Feedback]:
    """Arguments of the policy step after the state, by their names."""
    return {"rollout": self.rollout, "feedback": self.feedback}
