"""Accuracy on a split, decoding greedily."""

import dataclasses
from collections.abc import Sequence

import jax
import numpy as np

from pgax.data.prompts import CollatePrompts
from pgax.rewards.pool import Scorer
from pgax.training.records import Sample, make_samples
from pgax.training.rollout import finite_mean, score
from pgax.training.sampler import Sampler
from pgax.types import Example, PyTree, Rollout


@dataclasses.dataclass(frozen=True)
class Evaluation:
  """What came out of an evaluation.

  Attributes:
    accuracy: mean of the score `accuracy`, or of the reward where there is no such score,
      over the greedy completions that could be scored; nan if there are none.
    unscorable: fraction of completions that could not be scored.
    parts: mean of every score, `reward` among them.
    truncated: fraction of completions cut at the length limit.
    problems: number of problems.
    samples: the first few completions.
  """

  accuracy: float
  unscorable: float
  parts: dict[str, float]
  truncated: float
  problems: int
  samples: list[Sample]


def evaluate(
  sampler: Sampler,
  params: PyTree,
  examples: Sequence[Example],
  collate: CollatePrompts,
  scorer: Scorer,
  batch_size: int,
  num_samples: int = 8,
) -> Evaluation:
  """Decodes one greedy completion of every problem and scores it.

  Args:
    sampler: draws completions.
    params: of the policy.
    examples: the problems.
    collate: makes batches of them.
    scorer: applies the reward function.
    batch_size: problems decoded at a time, rounded up to a multiple of the devices; the
      last batch is filled up with copies of its last problem, which are not counted, so
      that there is one shape.
    num_samples: how many completions to keep.

  Returns:
    An `Evaluation`.
  """
  batch_size = min(batch_size, len(examples))
  batch_size = -(-batch_size // sampler.mesh.size) * sampler.mesh.size
  batches = []
  for start in range(0, len(examples), batch_size):
    some = [examples[i] for i in range(start, min(start + batch_size, len(examples)))]
    filled = collate(some + [some[-1]] * (batch_size - len(some)))
    # All are collated before any is decoded: a prompt over the limit is said at once.
    batches.append((filled, dataclasses.replace(filled, examples=tuple(some))))
  told, finished, samples = [], [], []
  for filled, real in batches:
    # Greedy decoding draws nothing, so the key plays no part.
    rollout = sampler(params, filled, jax.random.key(0), temperature=0.0, group=1)
    kept = first(jax.device_get(rollout), len(real.examples))
    scores = score(scorer, sampler.tokenizer, real, kept)
    wanted = num_samples - len(samples)
    samples += make_samples(sampler.tokenizer, real, kept, scores, limit=wanted)
    rewards = np.where(scores.valid, scores.rewards, np.nan)
    told.append({"reward": rewards} | scores.parts)
    finished.append(kept.finished)
  names = sorted({name for some in told for name in some})
  parts = {
    name: finite_mean(np.concatenate([some[name] for some in told if name in some]))
    for name in names
  }
  valid = np.concatenate([np.isfinite(some["reward"]) for some in told])
  return Evaluation(
    accuracy=parts.get("accuracy", parts["reward"]),
    unscorable=float(1 - valid.mean()),
    parts=parts,
    truncated=float(1 - np.concatenate(finished).mean()),
    problems=len(examples),
    samples=samples,
  )


def first(rollout: Rollout, count: int) -> Rollout:
  """The completions of the first `count` prompts."""
  return jax.tree.map(lambda x: x[:count], rollout)
