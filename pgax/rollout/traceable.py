"""A traceable source of rollouts, for programs that never return to the host."""

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from pgax.models.lora import LoraConfig, PolicyParams, merged
from pgax.rollout.config import SamplingConfig
from pgax.rollout.metrics import Completions
from pgax.rollout.sampler import Sampler
from pgax.rollout.scoring import RewardResults
from pgax.sampling import prompt_keys, sample
from pgax.types import Array, Feedback, PyTree, Rollout, Step, TokenReward


@flax.struct.dataclass
class Problems:
  """Prompts and the answers that their reward compares with.

  Attributes:
    prompt_tokens: `[..., N, P]` int32.
    prompt_mask: `[..., N, P]` bool.
    answers: `[..., N, A]` int32; see `TokenReward`.
  """

  prompt_tokens: Array
  prompt_mask: Array
  answers: Array


class Outcome(NamedTuple):
  """The outcome of a rollout, from which the host computes its metrics.

  Attributes:
    scores: `[N, G]` scores by name, `reward` among them.
    lengths: `[N, G]` int32, number of tokens that the policy sampled.
    finished: `[N, G]` bool, whether the completion ended before the length limit.
    greedy_tokens: int32 scalar, number of tokens of greedy completions.
  """

  scores: Mapping[str, Array]
  lengths: Array
  finished: Array
  greedy_tokens: Array

  def on_host(self) -> tuple[Completions, RewardResults]:
    """Returns what `rollout_metrics` takes."""
    rewards = np.asarray(self.scores["reward"])
    results = RewardResults(
      texts=[[] for _ in rewards],
      rewards=rewards,
      valid=np.ones(rewards.shape, bool),
      scores={name: x for name, x in sorted(self.scores.items()) if name != "reward"},
      reasons=np.full(rewards.shape, "", object),
    )
    return Completions(np.asarray(self.lengths, np.int64), self.finished), results


@dataclasses.dataclass(frozen=True)
class TokenRollouts:
  """The on-policy source as a function of arrays, with the samples of `Rollouts`.

  Attributes:
    sampler: model and sampling options.
    reward: reward of tokens.
    sampling: sampling settings; the temperature may be traced.
    greedy_baseline: whether to decode and score each prompt greedily as well.
    components: names of the scores that the algorithm reads one by one.
    lora: adapter settings of the policy.
  """

  sampler: Sampler
  reward: TokenReward
  sampling: SamplingConfig
  greedy_baseline: bool = False
  components: tuple[str, ...] = ()
  lora: LoraConfig = LoraConfig()

  def next(
    self, params: PolicyParams, step: Step, problems: Problems
  ) -> tuple[Rollout, Feedback, Outcome]:
    """Samples and scores completions of the problems of a step; it can be traced.

    Args:
      params: parameters of the policy.
      step: the step.
      problems: the `N` problems.

    Returns:
      The completions, their rewards, and their outcome.
    """
    decoder = merged(self.lora, params.base, params.trained)
    # `Rollouts` samples a batch with the first of as many keys as it may need.
    keys = prompt_keys(jax.random.split(step.rollout_key, 1)[0], len(problems.answers))
    rollout, scores = self.draw(
      decoder, problems, keys, self.sampling.temperature, self.sampling.group_size
    )
    greedy, greedy_tokens = None, jnp.int32(0)
    if self.greedy_baseline:
      decoded, greedy_scores = self.draw(decoder, problems, keys, 0.0, 1)
      greedy = greedy_scores["reward"][:, 0]
      greedy_tokens = jnp.sum(decoded.action_mask)
    names = self.components
    feedback = Feedback(
      rewards=scores["reward"],
      valid=jnp.ones(rollout.finished.shape, bool),
      greedy_rewards=greedy,
      components=jnp.stack([scores[x] for x in names], axis=-1) if names else None,
    )
    lengths = jnp.sum(rollout.action_mask, axis=-1)
    return rollout, feedback, Outcome(scores, lengths, rollout.finished, greedy_tokens)

  def draw(
    self, params: PyTree, problems: Problems, keys: Array, temperature: Array, group: int
  ) -> tuple[Rollout, Mapping[str, Array]]:
    """Samples and scores completions.

    Args:
      params: parameters of the decoder.
      problems: the `N` problems.
      keys: `[N]` random keys.
      temperature: sampling temperature; 0 decodes greedily.
      group: number of completions per problem.

    Returns:
      The completions, and `[N, G]` of each score by its name.
    """
    rollout = sample(
      self.sampler.model,
      params,
      jnp.asarray(problems.prompt_tokens),
      jnp.asarray(problems.prompt_mask),
      keys,
      self.sampler.options.replace(temperature=temperature),
      group=group,
      max_tokens=self.sampler.max_completion_tokens,
      record_experts=self.sampler.record_experts,
      fixed_steps=True,
    )
    scores = self.reward(
      rollout.prompt_tokens, rollout.tokens, rollout.token_mask, problems.answers
    )
    return rollout, scores
