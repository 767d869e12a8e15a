"""The actor: parameters in, experience out."""

import dataclasses
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import jax
import numpy as np

from pgax.algorithms.spec import DynamicSampling
from pgax.data.prompts import PromptBatch
from pgax.distributed.hosts import shared_errors
from pgax.distributed.partitioning import batch_sharding
from pgax.distributed.rows import owned_rows, put, take_rows
from pgax.rewards.pool import RewardRunner
from pgax.rollout.config import SamplingConfig, ScoringConfig
from pgax.rollout.experience import (
  Experience,
  ScoredRollout,
  Summary,
  informative_first,
  take_prompts,
)
from pgax.rollout.metrics import Completions, Stopwatch, rollout_metrics
from pgax.rollout.reward_model import RewardModel
from pgax.rollout.sampler import Sampler
from pgax.rollout.scoring import (
  RewardResults,
  check_scored,
  gather_results,
  score_components,
  score_rollout,
)
from pgax.rollout.step_rewards import rollout_step_rewards
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
    selected, metrics = self._sample_batches(params, key, times)
    watch, sharding = Stopwatch(), batch_sharding(self.sampler.mesh)
    empty = np.zeros(self.sampling.prompts_per_step, bool)
    if self.dynamic_sampling:
      empty = ~selected.informative
      metrics["sampling/filled"] = float(1 - empty.mean())
    feedback = put(self._feedback(selected, empty), sharding)
    times["time/reward"] += watch.lap()
    return Experience(
      prompts=selected.prompts,
      rollout=selected.rollout,
      results=selected.results,
      feedback=feedback,
      metrics=metrics | times,
    )

  def _sample_batches(
    self, params: PyTree, key: Array, times: dict[str, float]
  ) -> tuple[ScoredRollout, dict[str, float]]:
    """Samples batches of prompts until one can be filled with informative groups.

    Returns:
      A batch with the first informative groups and, where there are too few, with others
      behind them; and metrics of everything that was sampled.
    """
    limit = self.dynamic_sampling.max_batches if self.dynamic_sampling else 1
    sharding, selected, sampled = batch_sharding(self.sampler.mesh), None, []
    for batch_key in jax.random.split(key, limit):
      batch = self._sample_batch(params, batch_key, times)
      sampled.append(Summary.of(batch))
      if not self.dynamic_sampling:
        selected = batch
        break
      candidates = [batch] if selected is None else [selected, batch]
      selected = informative_first(candidates, sharding)
      if selected.informative.all():
        break
    return selected, self._metrics(sampled)

  def _metrics(self, sampled: Sequence[Summary]) -> dict[str, float]:
    """Computes metrics of all batches, after checking that they could be scored."""
    completions, results, examples, greedy_tokens = Summary.concatenate(sampled)
    check_scored(results, self.scoring.max_unscorable)
    metrics = rollout_metrics(completions, results, examples)
    if self.dynamic_sampling:
      metrics["sampling/batches"] = len(sampled)
    if self.greedy_baseline:
      metrics["completions/generated"] += len(examples)
      metrics["tokens/generated"] += greedy_tokens
    return metrics

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

    with ThreadPoolExecutor(1) as thread:
      samples = sample(chunks[0])
      pending = [_start(thread, sample, rows) for rows in chunks[1:]]
      for number, rows in enumerate(chunks):
        if number:
          samples = pending[number - 1].result()
        times["time/rollout"] += watch.lap([x and x.rollout for x in samples])
        with shared_errors():
          scored.append(self._score(take_prompts(prompts, rows), *samples))
        times["time/reward"] += watch.lap()
    batch = self._joined(prompts, chunks, scored)
    times["time/reward"] += watch.lap()
    return batch

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
  ) -> "_Scored":
    """Scores the completions that this process holds."""
    rows = owned_rows(batch_sharding(self.sampler.mesh), len(prompts.examples))
    return _Scored(
      rows,
      sampled.rollout,
      self._results(prompts, sampled, rows),
      greedy and greedy.rollout,
      greedy and self._results(prompts, greedy, rows),
    )

  def _results(
    self, prompts: PromptBatch, samples: _Samples, rows: np.ndarray
  ) -> RewardResults:
    rollout = samples.rollout
    results = score_rollout(self.runner, self.sampler.tokenizer, prompts, rollout, rows)
    if self.reward_model is None:
      return results
    return self.reward_model.combined(results, samples.model_rewards, rollout, rows)

  def _joined(
    self, prompts: PromptBatch, chunks: Sequence[np.ndarray], scored: "Sequence[_Scored]"
  ) -> ScoredRollout:
    """Joins the chunks of a batch, and the results of all processes."""
    count, rollout = len(prompts.examples), scored[0].rollout
    if len(chunks) > 1:
      sharding = batch_sharding(self.sampler.mesh)
      rollout = take_rows([x.rollout for x in scored], np.arange(count), sharding)
    rows = np.concatenate([chunk[x.rows] for chunk, x in zip(chunks, scored, strict=True)])

    def gathered(parts: Sequence[RewardResults]) -> RewardResults:
      return gather_results(RewardResults.concatenate(parts), rows, count)

    results = gathered([x.results for x in scored])
    if not self.greedy_baseline:
      return ScoredRollout(prompts, rollout, results)
    greedy = gathered([x.greedy_results for x in scored])
    rewards = np.where(greedy.valid, greedy.rewards, np.nan)[:, 0]
    lengths = [Completions.of(x.greedy).lengths for x in scored]
    return ScoredRollout(prompts, rollout, results, rewards, int(np.sum(lengths)))

  def _feedback(self, selected: ScoredRollout, empty: np.ndarray) -> Feedback:
    results, rewards, ends = selected.results, None, None
    if self.step_reward is not None:
      rewards, ends = rollout_step_rewards(
        self.step_reward,
        self.sampler.tokenizer,
        selected.prompts,
        selected.rollout,
        owned_rows(batch_sharding(self.sampler.mesh), len(selected.prompts.examples)),
      )
    return Feedback(
      rewards=results.rewards,
      valid=results.valid & ~empty[:, None],
      greedy_rewards=selected.greedy_rewards,
      step_rewards=rewards,
      step_ends=ends,
      components=score_components(results, self.components) if self.components else None,
    )


class _Scored(NamedTuple):
  """A chunk of completions, and the results of the rows that this process scored."""

  rows: np.ndarray
  rollout: Rollout
  results: RewardResults
  greedy: Rollout | None
  greedy_results: RewardResults | None


def _start(thread: ThreadPoolExecutor, sample: Callable, rows: np.ndarray) -> Future:
  """Starts sampling a chunk.

  In another thread, because on GPUs a loop of unknown length blocks its caller. Programs on
  the devices of several processes have to start in the same order in all of them, so there
  they start here.
  """
  if jax.process_count() == 1:
    return thread.submit(sample, rows)
  started: Future = Future()
  started.set_result(sample(rows))
  return started
