"""Samples and scores completions of many problems, in batches of one shape."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import jax

from pgax.data.prompts import CollatePrompts, PromptBatch
from pgax.rewards.pool import RewardRunner
from pgax.rollout.sampler import Sampler
from pgax.rollout.scoring import RewardResults, score_rollout
from pgax.types import Array, Example, PyTree, Rollout


class PaddedBatch(NamedTuple):
  """A batch of one shape.

  Attributes:
    padded: prompts, filled up with copies of the last one.
    examples: the problems, without those copies.
  """

  padded: PromptBatch
  examples: tuple[Example, ...]


def padded_batch(
  collate: CollatePrompts, examples: Sequence[Example], start: int, size: int
) -> PaddedBatch:
  """Collates the problems from `start` on, filled up to `size`.

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


def sample_and_score(
  sampler: Sampler,
  runner: RewardRunner,
  params: PyTree,
  batch: PaddedBatch,
  key: Array,
  temperature: float,
  samples: int,
) -> tuple[PromptBatch, Rollout, RewardResults]:
  """Samples and scores completions of a batch, leaving out the padding.

  Args:
    sampler: samples completions.
    runner: runs the reward function.
    params: parameters of the policy.
    batch: the problems.
    key: random key, or one for each prompt of the padded batch.
    temperature: sampling temperature; 0 decodes greedily.
    samples: number of completions per problem.

  Returns:
    The prompts, their completions on the host, and the results of the reward function.
  """
  rollout = sampler(params, batch.padded, key, temperature, samples)
  count = len(batch.examples)
  rollout = jax.tree.map(lambda x: x[:count], jax.device_get(rollout))
  prompts = dataclasses.replace(
    batch.padded,
    examples=batch.examples,
    tokens=batch.padded.tokens[:count],
    mask=batch.padded.mask[:count],
  )
  return prompts, rollout, score_rollout(runner, sampler.tokenizer, prompts, rollout)
