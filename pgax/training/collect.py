"""A step's worth of experience: sampled, scored, and filled up with groups that differ."""

import dataclasses
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import jax
import numpy as np
from jax.sharding import NamedSharding

from pgax.algorithms import filters
from pgax.data.prompts import PromptBatch
from pgax.models.partitioning import batch_sharding
from pgax.rewards.pool import RewardRunner as Scorer
from pgax.sampling import prompt_keys
from pgax.training.config import RunConfig
from pgax.training.reward_model import RewardModel
from pgax.training.rollout import (
  Scores,
  Stopwatch,
  check_scored,
  rollout_metrics,
  score,
)
from pgax.training.sampler import Sampler
from pgax.training.step_rewards import step_rewards
from pgax.types import Array, Feedback, PyTree, Rollout


@dataclasses.dataclass(frozen=True)
class Experience:
  """A scored rollout.

  Attributes:
    prompts: the batch that was sampled from.
    rollout: its completions.
    scores: theirs.
    greedy_rewards: `[N]` of each prompt's greedy completion, nan where it could not be
      scored; None where there is none.
    greedy_tokens: number of tokens of those completions.
  """

  prompts: PromptBatch
  rollout: Rollout
  scores: Scores
  greedy_rewards: np.ndarray | None = None
  greedy_tokens: int = 0


class _Drawn(NamedTuple):
  """Completions of some prompts, still being computed."""

  rollout: Rollout
  told: Array | None  # what the reward model says of them


@dataclasses.dataclass(frozen=True)
class Collector:
  """Collects the experience of a step.

  Attributes:
    config: of the run.
    sampler: draws completions.
    scorer: applies the reward function.
    next_prompts: gives the next batch of prompts.
    reward_model: has its say in the rewards; None for none.
  """

  config: RunConfig
  sampler: Sampler
  scorer: Scorer
  next_prompts: Callable[[], PromptBatch]
  reward_model: RewardModel | None = None

  def __call__(
    self, params: PyTree, key: Array
  ) -> tuple[Experience, Feedback, dict[str, float]]:
    """Samples and scores as many prompts as a step takes.

    Args:
      params: of the policy.
      key: random key of the step's rollout.

    Returns:
      The experience, what the train step is told of it, and metrics. These are over all
      that was sampled, dropped groups included. `time/rollout` and `time/reward` are the
      seconds that the step waited for completions and for their scores: what is drawn
      while others are scored counts as scoring.
    """
    refill, wanted = self.config.algorithm.refill, self.config.sampling.prompts
    found, times = [], {"time/rollout": 0.0, "time/reward": 0.0}
    informative = np.zeros(0, bool)
    for batch_key in jax.random.split(key, refill.max_batches if refill else 1):
      latest = self._sample(params, batch_key, times)
      found.append(latest)
      told = filters.informative(latest.scores.rewards, latest.scores.valid)
      informative = np.concatenate([informative, told])
      if informative.sum() >= wanted:
        break
    spread = batch_sharding(self.sampler.mesh)
    if not refill:
      (everything,), empty = found, np.zeros(wanted, bool)
      rollout = jax.device_put(everything.rollout, spread)  # where it is not there yet
      experience = dataclasses.replace(everything, rollout=rollout)
    else:
      everything = _joined(found)
      rows, empty = _fill(informative, wanted)
      experience = _rows(everything, rows, spread)
    check_scored(everything.scores, self.config.scoring.max_unscorable)
    metrics = rollout_metrics(everything.rollout, everything.scores)
    if refill:
      metrics["sampling/batches"] = len(found)
      metrics["sampling/filled"] = float(1 - empty.mean())
    if self.config.algorithm.greedy_baseline:
      metrics["completions/generated"] += sum(len(x.prompts.examples) for x in found)
      metrics["tokens/generated"] += sum(x.greedy_tokens for x in found)
    watch = Stopwatch()
    feedback = self._feedback(experience, empty)
    times["time/reward"] += watch.lap()
    return experience, feedback, metrics | times

  def _sample(self, params: PyTree, key: Array, times: dict[str, float]) -> Experience:
    """A batch of prompts, each part of them drawn while the one before is scored."""
    batch, watch = self.next_prompts(), Stopwatch()
    count = len(batch.examples)
    keys = prompt_keys(key, count)
    parts = np.split(np.arange(count), self.config.scoring.parts)
    scored = []

    def draw(rows: np.ndarray) -> tuple[_Drawn, _Drawn | None]:
      return self._draw(params, _prompts(batch, rows), keys[rows[0] : rows[-1] + 1])

    # In another thread, for on GPUs a loop of unknown length blocks the one that calls it.
    with ThreadPoolExecutor(1) as thread:
      drawn = draw(parts[0])
      later = [thread.submit(draw, rows) for rows in parts[1:]]
      for number, rows in enumerate(parts):
        if number:
          drawn = later[number - 1].result()
        times["time/rollout"] += watch.lap([x and x.rollout for x in drawn])
        scored.append(self._scored(_prompts(batch, rows), *drawn))
        times["time/reward"] += watch.lap()
    return _joined(scored) if len(scored) > 1 else scored[0]

  def _draw(
    self, params: PyTree, prompts: PromptBatch, keys: Array
  ) -> tuple[_Drawn, _Drawn | None]:
    """Starts drawing completions, greedy ones too if the algorithm has use for them.

    The reward model comes right behind, ahead of other prompts.
    """
    sampling, model = self.config.sampling, self.reward_model

    def drawn(temperature: float, group: int) -> _Drawn:
      rollout = self.sampler(params, prompts, keys, temperature, group)
      return _Drawn(rollout, model(rollout) if model else None)

    sampled = drawn(sampling.temperature, sampling.group)
    # Greedy decoding draws nothing, so the keys play no part.
    return sampled, drawn(0.0, 1) if self.config.algorithm.greedy_baseline else None

  def _scored(
    self, prompts: PromptBatch, sampled: _Drawn, greedy: _Drawn | None
  ) -> Experience:
    rollout = sampled.rollout
    experience = Experience(prompts, rollout, self._score(prompts, sampled))
    if greedy is None:
      return experience
    told = self._score(prompts, greedy)
    return dataclasses.replace(
      experience,
      greedy_rewards=np.where(told.valid, told.rewards, np.nan)[:, 0],
      greedy_tokens=int(np.asarray(greedy.rollout.mask).sum()),
    )

  def _score(self, prompts: PromptBatch, drawn: _Drawn) -> Scores:
    scores = score(self.scorer, self.sampler.tokenizer, prompts, drawn.rollout)
    model = self.reward_model
    return model.combined(scores, drawn.told, drawn.rollout) if model else scores

  def _feedback(self, experience: Experience, empty: np.ndarray) -> Feedback:
    scores = experience.scores
    rewards, ends = None, None
    if self.config.step_reward is not None:
      tokens, mask = jax.device_get((experience.rollout.tokens, experience.rollout.mask))
      rewards, ends = step_rewards(
        self.config.step_reward,
        self.sampler.tokenizer,
        experience.prompts,
        scores.texts,
        tokens,
        mask,
      )
    feedback = Feedback(
      scores.rewards,
      scores.valid & ~empty[:, None],
      experience.greedy_rewards,
      rewards,
      ends,
    )
    return jax.device_put(feedback, batch_sharding(self.sampler.mesh))


def _fill(informative: np.ndarray, wanted: int) -> tuple[np.ndarray, np.ndarray]:
  """Rows of the first groups that are informative, and which rows are there to fill up."""
  rows = np.flatnonzero(informative)[:wanted]
  empty = np.arange(wanted) >= len(rows)
  others = np.flatnonzero(~informative)[: wanted - len(rows)]
  return np.concatenate([rows, others]), empty


def _joined(found: Sequence[Experience]) -> Experience:
  """Several batches as one, on the host."""
  rollouts = jax.device_get([x.rollout for x in found])
  names = {name for x in found for name in x.scores.parts}
  missing = np.full(found[0].scores.rewards.shape, np.nan, np.float32)
  scores = Scores(
    texts=[group for x in found for group in x.scores.texts],
    rewards=np.concatenate([x.scores.rewards for x in found]),
    valid=np.concatenate([x.scores.valid for x in found]),
    parts={
      name: np.concatenate([x.scores.parts.get(name, missing) for x in found])
      for name in names
    },
    reasons=np.concatenate([x.scores.reasons for x in found]),
    detail=next((x.scores.detail for x in found if x.scores.detail), ""),
  )
  greedy = [x.greedy_rewards for x in found]
  return Experience(
    prompts=PromptBatch(
      examples=tuple(example for x in found for example in x.prompts.examples),
      tokens=np.concatenate([x.prompts.tokens for x in found]),
      mask=np.concatenate([x.prompts.mask for x in found]),
    ),
    rollout=jax.tree.map(lambda *parts: np.concatenate(parts), *rollouts),
    scores=scores,
    greedy_rewards=None if greedy[0] is None else np.concatenate(greedy),
    greedy_tokens=sum(x.greedy_tokens for x in found),
  )


def _prompts(batch: PromptBatch, rows: np.ndarray) -> PromptBatch:
  """Some of the prompts of a batch."""
  return PromptBatch(
    examples=tuple(batch.examples[row] for row in rows),
    tokens=batch.tokens[rows],
    mask=batch.mask[rows],
  )


def _rows(whole: Experience, rows: np.ndarray, sharding: NamedSharding) -> Experience:
  """Some prompts of a batch on the host, their completions back on the devices."""
  scores, greedy = whole.scores, whole.greedy_rewards
  return Experience(
    prompts=_prompts(whole.prompts, rows),
    rollout=jax.device_put(jax.tree.map(lambda x: x[rows], whole.rollout), sharding),
    scores=Scores(
      texts=[scores.texts[row] for row in rows],
      rewards=scores.rewards[rows],
      valid=scores.valid[rows],
      parts={name: values[rows] for name, values in scores.parts.items()},
      reasons=scores.reasons[rows],
      detail=scores.detail,
    ),
    greedy_rewards=None if greedy is None else greedy[rows],
  )
