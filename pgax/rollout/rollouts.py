"""Rollouts: completions of the current policy, sampled and scored."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import jax
import numpy as np

from pgax.algorithms.spec import DynamicSampling
from pgax.data.prompts import PromptBatch
from pgax.distributed.hosts import shared_errors
from pgax.distributed.partitioning import batch_sharding
from pgax.distributed.placement import owned_rows, put, take_rows
from pgax.models.lora import LoraConfig, PolicyParams, merged
from pgax.rewards.pool import RewardRunner
from pgax.rollout.config import SamplingConfig, ScoringConfig
from pgax.rollout.experience import Experience, ScoredRollout, informative_first
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
from pgax.rollout.source import CheckedIterator, SourceState
from pgax.rollout.step_rewards import rollout_step_rewards
from pgax.sampling import prompt_keys
from pgax.types import Array, Feedback, PyTree, Rollout, Step, StepRewardFn


class _Samples(NamedTuple):
  """Completions of a chunk of prompts, possibly still being computed."""

  rollout: Rollout
  model_rewards: Array | None  # [N, G], None without a reward model


class _Chunk(NamedTuple):
  """Samples of a chunk of prompts, and its greedy completions if there are any."""

  samples: _Samples
  greedy: _Samples | None


class _Sampling(NamedTuple):
  """What the batches of a step share: parameters, and the seconds spent so far."""

  params: PyTree
  seconds: dict[str, float]
  watch: Stopwatch


@dataclasses.dataclass(frozen=True)
class Rollouts:
  """The on-policy source: samples and scores completions of the prompts of a step.

  Attributes:
    sampler: samples completions.
    runner: runs the reward function.
    prompts: yields batches of prompts.
    sampling: sampling settings.
    scoring: scoring settings.
    dynamic_sampling: samples further batches until enough groups have a learning signal;
      None uses one batch as it is.
    greedy_baseline: whether to decode and score each prompt greedily as well.
    step_reward: step reward function; None without step rewards.
    components: names of the scores that the algorithm reads one by one; usually none.
    multiple: number of prompts that a batch is padded to a multiple of, so that devices
      can share it. Padding is sampled, and is neither learned from nor counted.
    reward_model: learned reward model added to the reward function; None without one.
    lora: adapter settings of the policy.
  """

  sampler: Sampler
  runner: RewardRunner
  prompts: CheckedIterator
  sampling: SamplingConfig
  scoring: ScoringConfig = ScoringConfig()
  dynamic_sampling: DynamicSampling | None = None
  greedy_baseline: bool = False
  step_reward: StepRewardFn | None = None
  components: tuple[str, ...] = ()
  multiple: int = 1
  reward_model: RewardModel | None = None
  lora: LoraConfig = LoraConfig()

  def next(self, params: PolicyParams, step: Step) -> Experience:
    """Returns the experience of a step.

    Args:
      params: parameters of the policy.
      step: the step, whose random key decides the samples.

    Returns:
      An `Experience`. Its metrics cover everything that was sampled, dropped groups
      included. `time/rollout` and `time/reward` are the seconds that the step waited for
      completions and for scores: sampling that overlaps with scoring counts as scoring.
    """
    return self.start(params, step)()

  def start(self, params: PolicyParams, step: Step) -> Callable[[], Experience]:
    """Samples the first chunk of prompts.

    Args:
      params: parameters of the policy.
      step: the step.

    Returns:
      A function that scores it, samples and scores all others, and returns the result of
      `next`. With one chunk and without dynamic sampling it samples nothing.
    """
    params = merged(self.lora, params.base, params.trained)
    seconds = {"time/rollout": 0.0, "time/reward": 0.0}
    this = _Sampling(self.sampler.place(params), seconds, Stopwatch())
    limit = self.dynamic_sampling.max_batches if self.dynamic_sampling else 1
    batch_keys = jax.random.split(step.rollout_key, limit)
    prompts = self._next_prompts()
    keys = prompt_keys(batch_keys[0], len(prompts.examples))
    first = self._sample(this.params, prompts, keys, self._chunks(prompts)[0])
    this.seconds["time/rollout"] += this.watch.lap(first)
    return functools.partial(self._finish, this, batch_keys, prompts, first)

  def _finish(
    self, this: _Sampling, batch_keys: Array, prompts: PromptBatch, first: _Chunk | None
  ) -> Experience:
    """Samples and scores what `start` has not, until the step has enough groups."""
    sharding, selected, sampled = batch_sharding(self.sampler.mesh), None, []
    wanted = self.sampling.prompts_per_step
    for batch_key in batch_keys:
      if first is None:
        prompts = self._next_prompts()
      batch, first = self._score_batch(this, prompts, batch_key, first), None
      sampled.append(dataclasses.replace(batch, rollout=None))  # metrics do not need it
      if not self.dynamic_sampling:
        selected = batch
        break
      candidates = [batch] if selected is None else [selected, batch]
      selected = informative_first(candidates, sharding)
      if selected.informative[:wanted].all():
        break
    metrics = self._metrics(sampled)
    this.watch.lap()
    empty = np.arange(len(selected.prompts.examples)) >= wanted
    if self.dynamic_sampling:
      empty |= ~selected.informative
      metrics["sampling/filled"] = float(1 - empty[:wanted].mean())
    feedback = put(self._feedback(selected, empty), sharding)
    this.seconds["time/reward"] += this.watch.lap()
    return Experience(
      prompts=selected.prompts,
      rollout=selected.rollout,
      results=selected.results,
      feedback=feedback,
      metrics=metrics | this.seconds,
    )

  def _next_prompts(self) -> PromptBatch:
    """Returns the next prompts, padded for the devices by copies of the last one."""
    prompts = next(self.prompts)
    wanted = len(prompts.examples)
    count = -(-wanted // self.multiple) * self.multiple
    return prompts.take(np.minimum(np.arange(count), wanted - 1))

  def _chunks(self, prompts: PromptBatch) -> list[np.ndarray]:
    """Divides the indices of prompts into chunks, each scored while the next is sampled."""
    return np.split(np.arange(len(prompts.examples)), self.scoring.pipeline_chunks)

  def _sample(
    self, params: PyTree, prompts: PromptBatch, keys: Array, rows: np.ndarray
  ) -> _Chunk:
    """Starts sampling a chunk of prompts, and decoding it for a greedy baseline."""
    prompts, keys = prompts.take(rows), keys[rows[0] : rows[-1] + 1]
    settings = [(self.sampling.temperature, self.sampling.group_size)]
    if self.greedy_baseline:
      settings.append((0.0, 1))  # greedy decoding ignores the keys
    samples = []
    for temperature, group in settings:
      rollout = self.sampler(params, prompts, keys, temperature, group)
      # The reward model runs right behind its rollout, ahead of other prompts.
      rewards = None if self.reward_model is None else self.reward_model(rollout)
      samples.append(_Samples(rollout, rewards))
    return _Chunk(samples[0], samples[1] if self.greedy_baseline else None)

  def _score_batch(
    self, this: _Sampling, prompts: PromptBatch, key: Array, first: _Chunk | None
  ) -> ScoredRollout:
    """Scores a batch in chunks; `first` is its first chunk if that was sampled already."""
    keys, chunks = prompt_keys(key, len(prompts.examples)), self._chunks(prompts)
    sample = functools.partial(self._sample, this.params, prompts, keys)
    scored, results, greedy_results = [], [], []
    with ThreadPoolExecutor(1) as thread:
      waiting = [sample(chunks[0]) if first is None else first]
      waiting += [_start(thread, sample, rows) for rows in chunks[1:]]
      for rows, chunk in zip(chunks, waiting, strict=True):
        chunk = chunk.result() if isinstance(chunk, Future) else chunk
        this.seconds["time/rollout"] += this.watch.lap(chunk)
        with shared_errors():
          part = prompts.take(rows)
          results.append(self._results(part, chunk.samples))
          if chunk.greedy is not None:
            greedy_results.append(self._results(part, chunk.greedy))
        scored.append(chunk)
        this.seconds["time/reward"] += this.watch.lap()
    batch = self._joined(prompts, chunks, scored, results, greedy_results)
    this.seconds["time/reward"] += this.watch.lap()
    return batch

  def _results(self, prompts: PromptBatch, samples: _Samples) -> RewardResults:
    """Scores the completions that this process holds."""
    rows = owned_rows(batch_sharding(self.sampler.mesh), len(prompts.examples))
    rollout = samples.rollout
    results = score_rollout(self.runner, self.sampler.tokenizer, prompts, rollout, rows)
    if self.reward_model is None:
      return results
    return self.reward_model.combined(results, samples.model_rewards, rollout, rows)

  def _joined(
    self,
    prompts: PromptBatch,
    chunks: Sequence[np.ndarray],
    scored: Sequence[_Chunk],
    results: Sequence[RewardResults],
    greedy_results: Sequence[RewardResults],
  ) -> ScoredRollout:
    """Joins chunks and the results of all processes; padding is not valid."""
    count, wanted = len(prompts.examples), self.sampling.prompts_per_step
    sharding, rollout = batch_sharding(self.sampler.mesh), scored[0].samples.rollout
    if len(chunks) > 1:
      rollout = take_rows([x.samples.rollout for x in scored], np.arange(count), sharding)
    owned = np.concatenate([rows[owned_rows(sharding, len(rows))] for rows in chunks])

    def gathered(parts: Sequence[RewardResults]) -> RewardResults:
      joined = gather_results(RewardResults.concatenate(parts), owned, count)
      is_wanted = np.arange(count)[:, None] < wanted
      return dataclasses.replace(joined, valid=joined.valid & is_wanted)

    batch = ScoredRollout(prompts, rollout, gathered(results), Completions.of(rollout))
    if not self.greedy_baseline:
      return batch
    greedy = gathered(greedy_results)
    lengths = [Completions.of(x.greedy.rollout).lengths for x in scored]
    return dataclasses.replace(
      batch,
      greedy_rewards=np.where(greedy.valid, greedy.rewards, np.nan)[:, 0],
      greedy_tokens=int(np.concatenate(lengths)[:wanted].sum()),
    )

  def _metrics(self, batches: Sequence[ScoredRollout]) -> dict[str, float]:
    """Computes metrics of all batches, after checking that they could be scored."""
    wanted = np.arange(self.sampling.prompts_per_step)
    results = RewardResults.concatenate([x.results.take(wanted) for x in batches])
    check_scored(results, self.scoring.max_unscorable)
    lengths, finished = zip(*(x.completions for x in batches), strict=True)
    completions = Completions(
      np.concatenate([x[: len(wanted)] for x in lengths]),
      np.concatenate([x[: len(wanted)] for x in finished]),
    )
    examples = [x for batch in batches for x in batch.prompts.examples[: len(wanted)]]
    metrics = rollout_metrics(completions, results, examples)
    if self.dynamic_sampling:
      metrics["sampling/batches"] = len(batches)
    if self.greedy_baseline:
      metrics["completions/generated"] += len(examples)
      metrics["tokens/generated"] += sum(x.greedy_tokens for x in batches)
    return metrics

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

  def state(self) -> SourceState:
    """Returns the position in the prompts."""
    return SourceState(self.prompts.get_state())

  def restore(self, state: SourceState, step: int) -> None:
    """Continues from a position."""
    del step
    self.prompts.set_state(state.position)

  def close(self) -> None:
    """Does nothing: whoever opened the reward runner closes it."""


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
