"""Stored rollouts: completions of a file, with the log-probabilities of their sampler.

Off-policy algorithms learn from them as their papers mean it: A-LoL (arXiv 2305.14718), P3O
(arXiv 2310.00212) and CoPG (arXiv 2406.19185). Any other algorithm treats them as samples
of the policy before the update, unless it has a `sampler_correction`.
"""

import dataclasses
from collections.abc import Sequence

import jax
import numpy as np

from pgax.data.completions import Completion
from pgax.data.prompts import PromptBatch, pad
from pgax.distributed.placement import put
from pgax.models.lora import PolicyParams
from pgax.rollout.experience import Experience
from pgax.rollout.metrics import Completions, rollout_metrics
from pgax.rollout.scoring import RewardResults
from pgax.rollout.source import CheckedIterator, SourceState
from pgax.types import Example, Feedback, Rollout, Step


@dataclasses.dataclass(frozen=True)
class Stored:
  """A source of stored completions; it does not depend on the policy.

  Attributes:
    groups: yields lists of `N` groups of `G` completions.
    prompt_length: width of prompts, `P`.
    completion_length: width of completions, `T`.
    sharding: sharding of prompts.
  """

  groups: CheckedIterator
  prompt_length: int
  completion_length: int
  sharding: jax.sharding.Sharding

  def next(self, params: PolicyParams, step: Step) -> Experience:
    """Returns the next completions, with their rewards."""
    del params, step
    groups: Sequence[Sequence[Completion]] = next(self.groups)
    prompts, mask = pad([group[0].prompt_ids for group in groups], self.prompt_length)
    examples = tuple(Example(group[0].prompt, "") for group in groups)
    rollout = self._rollout(prompts, mask, groups)
    rewards = np.array(
      [[np.nan if x.reward is None else x.reward for x in group] for group in groups],
      np.float32,
    )
    valid = np.isfinite(rewards)
    results = RewardResults(
      texts=[["" for _ in group] for group in groups],
      rewards=np.where(valid, rewards, np.float32(0)),
      valid=valid,
      scores={},
      reasons=np.where(valid, "", "nan").astype(object),
    )
    lengths = Completions(rollout.action_mask.sum(-1, dtype=np.int64), rollout.finished)
    metrics = rollout_metrics(lengths, results, examples)
    metrics |= {"tokens/generated": 0, "completions/generated": 0, "rollout/stored": 1}
    metrics |= {"time/rollout": 0.0, "time/reward": 0.0}
    feedback = Feedback(rewards=results.rewards, valid=valid)
    rollout, feedback = put((rollout, feedback), self.sharding)
    prompts = PromptBatch(examples, prompts, mask)
    return Experience(prompts, rollout, results, feedback, metrics)

  def _rollout(
    self, prompts: np.ndarray, mask: np.ndarray, groups: Sequence[Sequence[Completion]]
  ) -> Rollout:
    """Returns the completions as arrays on the host."""
    shape = (len(groups), len(groups[0]), self.completion_length)
    flat = [completion for group in groups for completion in group]
    tokens, real = pad([x.ids for x in flat], self.completion_length)
    logp, sample_logp = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
    logp[real.reshape(shape)] = np.concatenate([x.logp for x in flat])
    sample_logp[real.reshape(shape)] = np.concatenate([x.sample_logp for x in flat])
    return Rollout(
      prompt_tokens=prompts,
      prompt_mask=mask,
      tokens=tokens.reshape(shape),
      token_mask=real.reshape(shape),
      action_mask=real.reshape(shape),
      logp=logp,
      sample_logp=sample_logp,
      finished=np.array([x.finished for x in flat]).reshape(shape[:2]),
    )

  def state(self) -> SourceState:
    """Returns the position in the completions."""
    return SourceState(self.groups.get_state())

  def restore(self, state: SourceState, step: int) -> None:
    """Continues from a position."""
    del step
    self.groups.set_state(state.position)

  def close(self) -> None:
    """Does nothing."""
