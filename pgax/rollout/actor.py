"""The actor: parameters in, experience out."""

import dataclasses
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import jax
import numpy as np

from pgax.algorithms import filters
from pgax.algorithms.spec import DynamicSampling
from pgax.data.prompts import PromptBatch
from pgax.distributed.partitioning import batch_sharding
from pgax.rewards.pool import RewardRunner
from pgax.rollout.config import SamplingConfig, ScoringConfig
from pgax.rollout.experience import Experience, ScoredRollout, take_prompts
from pgax.rollout.metrics import Stopwatch, rollout_metrics
from pgax.rollout.reward_model import RewardModel
from pgax.rollout.sampler import Sampler
from pgax.rollout.scoring import (
  RewardResults,
  check_scored,
  score_components,
  score_rollout,
)
from pgax.rollout.step_rewards import step_rewards
from pgax.sampling import prompt_keys
from pgax.types import Array, Feedback, PyTree, Rollout, StepRewardFn


class _Samples(NamedTuple):
  """Completions and their model rewards, both possibly still being computed."""

  rollout: Rollout
  model_rewards: Array | None  # [N, G], None without a reward model


@dataclasses.dataclass(frozen=True)
class Actor:
  """Samples and scores the prompts of a step.

  Attributes:
    sampler: samples completions.
    runner: runs the reward function.
    next_prompts: returns the next batch of prompts.
    sampling: sampling settings.
    scoring: scoring settings.
    dynamic_sampling: samples further batches until enough groups have a learning signal;
      None uses one batch as it is.
    greedy_baseline: whether to decode and score each prompt greedily as well.
    step_reward: step reward function; None without step rewards.
    components: names of the scores that the algorithm reads one by one; usually none.
    reward_model: learned reward model added to the reward function; None without one.
  """

  sampler: Sampler
  runner: RewardRunner
  next_prompts: Callable[[], PromptBatch]
  sampling: SamplingConfig
  scoring: ScoringConfig = ScoringConfig()
  dynamic_sampling: DynamicSampling | None = None
  greedy_baseline: bool = False
  step_reward: StepRewardFn | None = None
  components: tuple[str, ...] = ()
  reward_model: RewardModel | None = None

  def __call__(self, params: PyTree, key: Array) -> Experience:
    """Collects the experience of a step.

    Args:
      params: parameters of the policy.
      key: random key of the rollout.

    Returns:
      An `Experience`. Its metrics cover everything that was sampled, dropped groups
      included. `time/rollout` and `time/reward` are the seconds that the step waited for
      completions and for scores: sampling that overlaps with scoring counts as scoring.
    """
    times = {"time/rollout": 0.0, "time/reward": 0.0}
    params = self.sampler.place(params)
    batches, informative = self._sample_batches(params, key, times)
    sampled = batches[0] if len(batches) == 1 else ScoredRollout.concatenate(batches)
    check_scored(sampled.results, self.scoring.max_unscorable)
    metrics = rollout_metrics(sampled.rollout, sampled.results, sampled.prompts.examples)
    selected, empty = sampled, np.zeros(self.sampling.prompts_per_step, bool)
    if self.dynamic_sampling:
      rows, empty = _fill(informative, self.sampling.prompts_per_step)
      selected = sampled.take(rows)
      metrics["sampling/batches"] = len(batches)
      metrics["sampling/filled"] = float(1 - empty.mean())
    if self.greedy_baseline:
      metrics["completions/generated"] += len(sampled.prompts.examples)
      metrics["tokens/generated"] += sampled.greedy_tokens
    watch = Stopwatch()
    sharding = batch_sharding(self.sampler.mesh)
    feedback = jax.device_put(self._feedback(selected, empty), sharding)
    times["time/reward"] += watch.lap()
    return Experience(
      prompts=selected.prompts,
      rollout=jax.device_put(selected.rollout, sharding),
      results=selected.results,
      feedback=feedback,
      metrics=metrics | times,
    )

  def _sample_batches(
    self, params: PyTree, key: Array, times: dict[str, float]
  ) -> tuple[list[ScoredRollout], np.ndarray]:
    """Samples batches of prompts; also returns which groups are informative."""
    limit = self.dynamic_sampling.max_batches if self.dynamic_sampling else 1
    batches, informative = [], np.zeros(0, bool)
    for batch_key in jax.random.split(key, limit):
      batch = self._sample_batch(params, batch_key, times)
      batches.append(batch)
      latest = filters.informative(batch.results.rewards, batch.results.valid)
      informative = np.concatenate([informative, latest])
      if informative.sum() >= self.sampling.prompts_per_step:
        break
    return batches, informative

  def _sample_batch(
    self, params: PyTree, key: Array, times: dict[str, float]
  ) -> ScoredRollout:
    """Samples a batch of prompts in chunks, each while the one before it is scored."""
    prompts, watch = self.next_prompts(), Stopwatch()
    count = len(prompts.examples)
    keys = prompt_keys(key, count)
    chunks = np.split(np.arange(count), self.scoring.pipeline_chunks)
    scored = []

    def sample(rows: np.ndarray) -> tuple[_Samples, _Samples | None]:
      chunk_keys = keys[rows[0] : rows[-1] + 1]
      return self._start_sampling(params, take_prompts(prompts, rows), chunk_keys)

    # In another thread, because on GPUs a loop of unknown length blocks its caller.
    with ThreadPoolExecutor(1) as thread:
      samples = sample(chunks[0])
      pending = [thread.submit(sample, rows) for rows in chunks[1:]]
      for number, rows in enumerate(chunks):
        if number:
          samples = pending[number - 1].result()
        times["time/rollout"] += watch.lap([x and x.rollout for x in samples])
        scored.append(self._score(take_prompts(prompts, rows), *samples))
        times["time/reward"] += watch.lap()
    return ScoredRollout.concatenate(scored) if len(scored) > 1 else scored[0]

  def _start_sampling(
    self, params: PyTree, prompts: PromptBatch, keys: Array
  ) -> tuple[_Samples, _Samples | None]:
    """Starts sampling, and decoding greedily for a greedy baseline."""

    def start(temperature: float, group: int) -> _Samples:
      rollout = self.sampler(params, prompts, keys, temperature, group)
      # The reward model runs right behind its rollout, ahead of other prompts.
      return _Samples(rollout, self.reward_model and self.reward_model(rollout))

    sampled = start(self.sampling.temperature, self.sampling.group_size)
    # Greedy decoding ignores the keys.
    return sampled, start(0.0, 1) if self.greedy_baseline else None

  def _score(
    self, prompts: PromptBatch, sampled: _Samples, greedy: _Samples | None
  ) -> ScoredRollout:
    results = self._results(prompts, sampled)
    if greedy is None:
      return ScoredRollout(prompts, sampled.rollout, results)
    greedy_results = self._results(prompts, greedy)
    rewards = np.where(greedy_results.valid, greedy_results.rewards, np.nan)[:, 0]
    tokens = int(np.asarray(greedy.rollout.action_mask).sum())
    return ScoredRollout(prompts, sampled.rollout, results, rewards, tokens)

  def _results(self, prompts: PromptBatch, samples: _Samples) -> RewardResults:
    results = score_rollout(self.runner, self.sampler.tokenizer, prompts, samples.rollout)
    if self.reward_model is None:
      return results
    return self.reward_model.combined(results, samples.model_rewards, samples.rollout)

  def _feedback(self, selected: ScoredRollout, empty: np.ndarray) -> Feedback:
    results, rewards, ends = selected.results, None, None
    if self.step_reward is not None:
      rollout = selected.rollout
      tokens, mask = jax.device_get((rollout.tokens, rollout.token_mask))
      rewards, ends = step_rewards(
        self.step_reward,
        self.sampler.tokenizer,
        selected.prompts,
        results.texts,
        tokens,
        mask,
      )
    return Feedback(
      rewards=results.rewards,
      valid=results.valid & ~empty[:, None],
      greedy_rewards=selected.greedy_rewards,
      step_rewards=rewards,
      step_ends=ends,
      components=score_components(results, self.components) if self.components else None,
    )


def _fill(informative: np.ndarray, wanted: int) -> tuple[np.ndarray, np.ndarray]:
  """Selects the first informative groups; also returns which rows only fill the batch."""
  rows = np.flatnonzero(informative)[:wanted]
  empty = np.arange(wanted) >= len(rows)
  others = np.flatnonzero(~informative)[: wanted - len(rows)]
  return np.concatenate([rows, others]), empty
