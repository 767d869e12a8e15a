"""Samples and scores completions of many problems, in batches of one shape."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pgax.data.prompts import CollatePrompts, PromptBatch
from pgax.distributed.hosts import gather, shared_errors
from pgax.distributed.partitioning import batch_sharding
from pgax.distributed.placement import owned_rows
from pgax.rewards.pool import RewardRunner
from pgax.rollout.metrics import Completions
from pgax.rollout.sampler import Sampler
from pgax.rollout.scoring import RewardResults, gather_results, score_rollout
from pgax.types import AnswerFn, Array, Example, PyTree, Rollout


class PaddedBatch(NamedTuple):
  """A batch of one shape.

  Attributes:
    padded: prompts, padded with copies of the last one.
    examples: the problems, without those copies.
  """

  padded: PromptBatch
  examples: tuple[Example, ...]


def padded_batch(
  collate: CollatePrompts, examples: Sequence[Example], start: int, size: int
) -> PaddedBatch:
  """Collates the problems from `start` on, padded to `size`.

  Args:
    collate: collates problems.
    examples: all problems.
    start: index of the first problem.
    size: number of prompts in the batch.

  Returns:
    A `PaddedBatch`.
  """
  batch = [examples[i] for i in range(start, min(start + size, len(examples)))]
  padded = collate(batch + [batch[-1]] * (size - len(batch)))
  return PaddedBatch(padded, tuple(batch))


def whole_batches(sampler: Sampler, size: int) -> int:
  """Rounds a number of problems up to a multiple of the devices."""
  devices = sampler.mesh.size
  return -(-size // devices) * devices


class ScoredBatch(NamedTuple):
  """Completions of a batch and their results, without the padding.

  Attributes:
    prompts: the `N` prompts.
    rollout: their completions on the devices, followed by those of the padding.
    completions: lengths of the completions.
    results: results of the reward function.
    answers: `[N, G]` answers that the completions vote for; None if none were asked for.
  """

  prompts: PromptBatch
  rollout: Rollout
  completions: Completions
  results: RewardResults
  answers: np.ndarray | None


def sample_and_score(
  sampler: Sampler,
  runner: RewardRunner,
  params: PyTree,
  batch: PaddedBatch,
  key: Array,
  temperature: float,
  samples: int,
  extract_answer: AnswerFn | None = None,
) -> ScoredBatch:
  """Samples and scores completions of a batch, leaving out the padding.

  Args:
    sampler: samples completions.
    runner: runs the reward function.
    params: parameters of the policy.
    batch: the problems.
    key: random key, or one for each prompt of the padded batch.
    temperature: sampling temperature; 0 decodes greedily.
    samples: number of completions per problem.
    extract_answer: extracts the answer that a completion votes for; None for no answers.

  Returns:
    A `ScoredBatch`.
  """
  rollout = sampler(params, batch.padded, key, temperature, samples)
  count, size = len(batch.examples), len(batch.padded.tokens)
  prompts = dataclasses.replace(
    batch.padded,
    examples=batch.examples,
    tokens=batch.padded.tokens[:count],
    mask=batch.padded.mask[:count],
  )
  rows = owned_rows(batch_sharding(sampler.mesh), size)
  rows = rows[rows < count]
  with shared_errors():
    results = score_rollout(runner, sampler.tokenizer, prompts, rollout, rows)
    votes = None
    if extract_answer is not None:
      votes = [[extract_answer(x) for x in texts] for texts in results.texts]
  return ScoredBatch(
    prompts=prompts,
    rollout=rollout,
    results=gather_results(results, rows, count),
    answers=None if votes is None else _gather_votes(votes, rows, (count, samples)),
    completions=Completions.of(rollout, count),
  )


def _gather_votes(
  votes: list[list[str | None]], rows: np.ndarray, shape: tuple[int, int]
) -> np.ndarray:
  answers = np.full(shape, None, object)
  for indices, groups in gather((rows, votes)):
    for row, group in zip(indices, groups, strict=True):
      answers[row] = group
  return answers
