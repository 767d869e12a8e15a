"""How good a policy is on problems: accuracy, pass@k, majority@k, with intervals."""

import dataclasses
from collections.abc import Sequence

import jax
import numpy as np

from pgax.data.prompts import CollatePrompts
from pgax.evaluation.voting import majority_at_k
from pgax.ops.evaluation import Estimate, bootstrap, pass_at_k
from pgax.rewards.pool import RewardRunner as Scorer
from pgax.training.draws import check_draws
from pgax.training.records import Sample, make_samples
from pgax.training.rollout import Scores, score
from pgax.training.sampler import Sampler
from pgax.types import AnswerFn, Array, Example, PyTree, Rollout

# The state's keys are split from the same seed: they are its streams 0 to 2.
_STREAM = 2**31 - 1
_bootstrap = jax.jit(bootstrap)
_pass_at_k = jax.jit(pass_at_k, static_argnames="k")


@dataclasses.dataclass(frozen=True)
class Evaluation:
  """What came out of an evaluation.

  A completion is right if its score `accuracy`, or its reward where there is no such score,
  is at least 1. Of a reward that reaches 1 for no or for other reasons, such as a weighted
  sum, nothing can be said but by a score `accuracy`.

  Attributes:
    estimates: means over problems, each with its 95 % interval, by name:
      `accuracy`, of the score `accuracy`, or the fraction that is right without it;
      `pass@K`, the chance that one of `K` completions is right;
      `majority@K`, the chance that the most frequent answer of `K` completions is;
      `length`, in tokens, EOS included;
      `truncated`, the fraction of completions cut at the length limit;
      `unscorable`, the fraction of completions that could not be scored;
      `reward/mean`, and `reward/NAME` of every other score.
      Of a problem all but length and the fractions are those of its completions that could
      be scored; one with too few of them takes no part, and nan is the mean of none.
    problems: number of problems.
    samples: the first few completions.
  """

  estimates: dict[str, Estimate]
  problems: int
  samples: list[Sample]

  @property
  def accuracy(self) -> float:
    """The mean alone."""
    return self.estimates["accuracy"].mean


def evaluation_key(seed: int) -> Array:
  """The random key of evaluations: a stream of its own of a run's seed."""
  return jax.random.fold_in(jax.random.key(seed), _STREAM)


def evaluation_metrics(found: Evaluation) -> dict[str, float]:
  """The means of an evaluation, under the names they are logged by: `eval/NAME`.

  Args:
    found: the evaluation.

  Returns:
    Scalars; of the accuracy the ends of its interval too.
  """
  metrics = {f"eval/{name}": x.mean for name, x in found.estimates.items()}
  accuracy = found.estimates["accuracy"]
  return metrics | {
    "eval/accuracy_low": accuracy.low,
    "eval/accuracy_high": accuracy.high,
  }


def evaluate(
  sampler: Sampler,
  params: PyTree,
  examples: Sequence[Example],
  collate: CollatePrompts,
  scorer: Scorer,
  batch_size: int,
  key: Array,
  *,
  samples: int = 1,
  temperature: float = 0.0,
  answer: AnswerFn | None = None,
  keep: int = 8,
) -> Evaluation:
  """Draws completions of every problem and scores them.

  Args:
    sampler: draws completions.
    params: of the policy.
    examples: the problems.
    collate: makes batches of them.
    scorer: applies the reward function.
    batch_size: completions decoded at a time, in whole problems, and their number rounded
      up to a multiple of the devices; the last batch is filled up with copies of its last
      problem, which are not counted, so that there is one shape. What is drawn does not
      depend on it.
    key: random key, of no other use; a problem's draws depend on it and on the problem's
      place in `examples`.
    samples: completions of each problem.
    temperature: of the policy; 0 decodes greedily.
    answer: reads the answer that a completion votes for; None for no `majority@K`.
    keep: how many completions to keep.

  Returns:
    An `Evaluation`, with `K` of 1 (for pass@K alone), 2, 4 and so on, and of all samples.

  Raises:
    ValueError: for no samples, a negative temperature, or several greedy samples.
  """
  check_draws(samples, temperature)
  draw_key, bootstrap_key = jax.random.split(key)
  devices = sampler.mesh.size
  size = min(max(batch_size // samples, 1), len(examples))
  size = -(-size // devices) * devices
  batches = []
  for start in range(0, len(examples), size):
    some = [examples[i] for i in range(start, min(start + size, len(examples)))]
    filled = collate(some + [some[-1]] * (size - len(some)))
    # All are collated before any is decoded: a prompt over the limit is said at once.
    batches.append((start, filled, dataclasses.replace(filled, examples=tuple(some))))
  told, records = [], []
  for start, filled, real in batches:
    numbers = np.arange(start, start + size)
    keys = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(draw_key, numbers)
    rollout = sampler(params, filled, keys, temperature, samples)
    kept = _first(jax.device_get(rollout), len(real.examples))
    scores = score(scorer, sampler.tokenizer, real, kept)
    wanted = keep - len(records)
    records += make_samples(sampler.tokenizer, real, kept, scores, limit=wanted)
    told.append(_completions(kept, scores, answer))
  values = _problems(_joined(told), samples)
  estimates = jax.device_get(_bootstrap(np.stack(list(values.values())), bootstrap_key))
  columns = zip(*(x.tolist() for x in estimates), strict=True)
  return Evaluation(
    estimates=dict(zip(values, map(Estimate._make, columns), strict=True)),
    problems=len(examples),
    samples=records,
  )


def _first(rollout: Rollout, count: int) -> Rollout:
  """The completions of the first `count` prompts."""
  return jax.tree.map(lambda x: x[:count], rollout)


def _completions(
  rollout: Rollout, scores: Scores, answer: AnswerFn | None
) -> dict[str, np.ndarray]:
  """What is known of each completion, `[N, G]`; nan where there is no such score."""
  told = {
    "length": rollout.mask.sum(-1),
    "truncated": ~rollout.finished,
    "unscorable": ~scores.valid,
    "reward/mean": np.where(scores.valid, scores.rewards, np.nan),
  }
  if answer and rollout.finished.shape[1] > 1:
    answers = [[answer(text) for text in group] for group in scores.texts]
    told["answer"] = np.array(answers, object)
  return told | {f"reward/{name}": x for name, x in scores.parts.items()}


def _joined(batches: Sequence[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
  """All completions; a batch may lack a score that others have."""
  names = dict.fromkeys(name for batch in batches for name in batch)
  missing = [np.full(batch["length"].shape, np.nan) for batch in batches]
  return {
    name: np.concatenate(
      [x.get(name, nothing) for x, nothing in zip(batches, missing, strict=True)]
    )
    for name in names
  }


def _problems(told: dict[str, np.ndarray], samples: int) -> dict[str, np.ndarray]:
  """What each problem contributes to every mean, `[N]`; nan where it has no part in it."""
  answers = told.pop("answer", None)
  accuracy = told.get("reward/accuracy")
  outcome = told["reward/mean"] if accuracy is None else accuracy
  valid = np.isfinite(outcome)
  right = valid & (outcome >= 1)
  if accuracy is None:
    accuracy = np.where(valid, right, np.nan)
  powers = [2**i for i in range(samples.bit_length()) if 2**i < samples]
  values = {"accuracy": _mean(accuracy)}
  for k in (*powers, samples):
    values[f"pass@{k}"] = np.asarray(_pass_at_k(right, valid, k))
  for k in (*powers, samples):
    if k > 1 and answers is not None:
      rows = zip(answers, right, valid, strict=True)
      voted = [majority_at_k(list(a[ok]), list(r[ok]), k) for a, r, ok in rows]
      values[f"majority@{k}"] = np.array(voted)
  return values | {name: _mean(x) for name, x in told.items()}


def _mean(values: np.ndarray) -> np.ndarray:
  """Mean over the completions of each problem that have a value, nan where none has."""
  finite = np.isfinite(values)
  count = finite.sum(-1)
  total = np.where(finite, values, 0).sum(-1, dtype=np.float64)
  return np.where(count > 0, total / np.maximum(count, 1), np.nan)
