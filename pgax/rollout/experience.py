"""Scored rollouts on the host, and the experience that a train step learns from."""

import dataclasses
from collections.abc import Mapping, Sequence

import jax
import numpy as np

from pgax.data.prompts import PromptBatch
from pgax.rollout.scoring import RewardResults
from pgax.types import Feedback, Rollout


@dataclasses.dataclass(frozen=True)
class ScoredRollout:
  """Completions of a batch of prompts, with their rewards.

  Attributes:
    prompts: the `N` prompts.
    rollout: their completions.
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

  def take(self, rows: np.ndarray) -> "ScoredRollout":
    """Returns some prompts, by index, with their completions; all arrays on the host."""
    greedy = self.greedy_rewards
    return ScoredRollout(
      prompts=take_prompts(self.prompts, rows),
      rollout=jax.tree.map(lambda x: x[rows], jax.device_get(self.rollout)),
      results=self.results.take(rows),
      greedy_rewards=None if greedy is None else greedy[rows],
    )

  @staticmethod
  def concatenate(batches: Sequence["ScoredRollout"]) -> "ScoredRollout":
    """Joins several batches; all arrays are then on the host."""
    rollouts = jax.device_get([x.rollout for x in batches])
    greedy = [x.greedy_rewards for x in batches]
    return ScoredRollout(
      prompts=PromptBatch(
        examples=tuple(example for x in batches for example in x.prompts.examples),
        tokens=np.concatenate([x.prompts.tokens for x in batches]),
        mask=np.concatenate([x.prompts.mask for x in batches]),
      ),
      rollout=jax.tree.map(lambda *arrays: np.concatenate(arrays), *rollouts),
      results=RewardResults.concatenate([x.results for x in batches]),
      greedy_rewards=None if greedy[0] is None else np.concatenate(greedy),
      greedy_tokens=sum(x.greedy_tokens for x in batches),
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
