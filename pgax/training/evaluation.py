"""Accuracy on a split, decoding greedily."""

import dataclasses
from collections.abc import Sequence

import jax
import numpy as np

from pgax.data.prompts import CollatePrompts
from pgax.training.records import Sample, make_samples
from pgax.training.rollout import Sampler, finite_mean, score
from pgax.types import Example, PyTree, RewardFn, Rollout


@dataclasses.dataclass(frozen=True)
class Evaluation:
  """What came out of an evaluation.

  Attributes:
    accuracy: mean reward of the greedy completions that could be scored.
    parts: mean of every other score.
    truncated: fraction of completions cut at the length limit.
    problems: number of problems.
    samples: the first few completions.
  """

  accuracy: float
  parts: dict[str, float]
  truncated: float
  problems: int
  samples: list[Sample]


def evaluate(
  sampler: Sampler,
  params: PyTree,
  examples: Sequence[Example],
  collate: CollatePrompts,
  reward: RewardFn,
  batch_size: int,
  num_samples: int = 8,
) -> Evaluation:
  """Decodes one greedy completion of every problem and scores it.

  Args:
    sampler: draws completions.
    params: of the policy.
    examples: the problems.
    collate: makes batches of them.
    reward: scores a completion.
    batch_size: problems decoded at a time; the last batch is filled up with copies of its
      last problem, which are not counted, so that there is one shape.
    num_samples: how many completions to keep.

  Returns:
    An `Evaluation`.
  """
  rewards, valid, finished, parts, samples = [], [], [], [], []
  for start in range(0, len(examples), batch_size):
    some = [examples[i] for i in range(start, min(start + batch_size, len(examples)))]
    batch = collate(some + [some[-1]] * (batch_size - len(some)))
    # Greedy decoding draws nothing, so the key plays no part.
    rollout = sampler(params, batch, jax.random.key(0), temperature=0.0, group=1)
    real = dataclasses.replace(batch, examples=tuple(some))
    kept = first(jax.device_get(rollout), len(some))
    scores = score(reward, sampler.tokenizer, real, kept)
    rewards.append(scores.rewards)
    valid.append(scores.valid)
    finished.append(kept.finished)
    parts.append(scores.parts)
    wanted = num_samples - len(samples)
    samples += make_samples(sampler.tokenizer, real, kept, scores, limit=wanted)
  rewards, valid = np.concatenate(rewards), np.concatenate(valid)
  names = sorted({name for some in parts for name in some})
  return Evaluation(
    accuracy=float(rewards[valid].mean()) if valid.any() else float("nan"),
    parts={
      name: finite_mean(np.concatenate([some[name] for some in parts if name in some]))
      for name in names
    },
    truncated=float(1 - np.concatenate(finished).mean()),
    problems=len(examples),
    samples=samples,
  )


def first(rollout: Rollout, count: int) -> Rollout:
  """The completions of the first `count` prompts."""
  return jax.tree.map(lambda x: x[:count], rollout)
