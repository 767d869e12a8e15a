"""Evaluation of a policy: accuracy, pass@k, majority@k, with confidence intervals."""

import dataclasses
from collections.abc import Callable, Sequence

import jax
import numpy as np

from pgax.data.prompts import CollatePrompts
from pgax.evaluation.batches import padded_batch, sample_and_score, whole_batches
from pgax.evaluation.config import check_sampling
from pgax.evaluation.voting import majority_at_k
from pgax.ops.evaluation import Estimate, bootstrap, pass_at_k
from pgax.rewards.pool import RewardRunner
from pgax.rollout.metrics import Completions
from pgax.rollout.sampler import Sampler
from pgax.rollout.samples import Sample, make_samples
from pgax.rollout.scoring import RewardResults
from pgax.runs.interrupt import check_stop
from pgax.types import AnswerFn, Array, Example, PyTree

# The keys of a training state are split from the same seed: they are its streams 0 to 2.
_STREAM = 2**31 - 1
_bootstrap = jax.jit(bootstrap)
_pass_at_k = jax.jit(pass_at_k, static_argnames="k")


@dataclasses.dataclass(frozen=True)
class Evaluation:
  """Result of an evaluation.

  A completion is right if its score `accuracy`, or its reward without one, is at least 1.
  If a reward of 1 does not mean "correct" (a weighted sum, for instance), return an
  `accuracy` score as well.

  Attributes:
    estimates: means over problems with their 95 % intervals, by name:
      `accuracy`, the score `accuracy`, or the fraction of right completions without it;
      `pass@K`, the probability that at least one of `K` completions is right;
      `majority@K`, the probability that the most frequent answer of `K` completions is;
      `length`, in tokens, EOS included;
      `truncated`, the fraction of completions cut at the length limit;
      `unscorable`, the fraction of completions that could not be scored;
      `reward/mean`, and `reward/NAME` of every other score.
      Except for length and the two fractions, a problem contributes the completions that
      could be scored. A problem with too few of them is left out; a mean of none is nan.
    problems: number of problems.
    samples: the first few completions.
  """

  estimates: dict[str, Estimate]
  problems: int
  samples: list[Sample]

  @property
  def accuracy(self) -> float:
    """Mean accuracy."""
    return self.estimates["accuracy"].mean


def evaluation_key(seed: int) -> Array:
  """Derives the random key of evaluations from a run's seed; nothing else uses it."""
  return jax.random.fold_in(jax.random.key(seed), _STREAM)


def evaluation_metrics(evaluation: Evaluation) -> dict[str, float]:
  """Returns the means of an evaluation, keyed by their log names `eval/NAME`.

  Args:
    evaluation: result of an evaluation.

  Returns:
    Scalars, the interval of the accuracy among them.
  """
  metrics = {f"eval/{name}": x.mean for name, x in evaluation.estimates.items()}
  accuracy = evaluation.estimates["accuracy"]
  return metrics | {
    "eval/accuracy_low": accuracy.low,
    "eval/accuracy_high": accuracy.high,
  }


def evaluate(
  sampler: Sampler,
  params: PyTree,
  examples: Sequence[Example],
  collate: CollatePrompts,
  runner: RewardRunner,
  batch_size: int,
  key: Array,
  *,
  samples: int = 1,
  temperature: float = 0.0,
  extract_answer: AnswerFn | None = None,
  keep: int = 8,
  stop: Callable[[], bool] | None = None,
) -> Evaluation:
  """Samples completions of every problem and scores them.

  Args:
    sampler: samples completions.
    params: parameters of the policy.
    examples: the problems.
    collate: collates problems; all are collated before any is decoded, so that a prompt
      over the limit is reported at once.
    runner: runs the reward function.
    batch_size: number of completions decoded at a time, rounded to whole problems and up
      to a multiple of the devices. Samples do not depend on it.
    key: random key, not used elsewhere; a problem's samples depend on it and on the
      problem's index.
    samples: number of completions per problem.
    temperature: sampling temperature; 0 decodes greedily.
    extract_answer: extracts the answer that a completion votes for; None for no
      `majority@K`.
    keep: number of completions to return as samples.
    stop: whether to stop, asked before every batch; None never stops.

  Returns:
    An `Evaluation`, with `K` of 1 (for pass@K only), 2, 4 and so on, and all samples.

  Raises:
    ValueError: if there are no samples, the temperature is negative, or several samples
      are decoded greedily.
    StoppedError: if it was stopped.
  """
  check_sampling(samples, temperature)
  sample_key, bootstrap_key = jax.random.split(key)
  size = whole_batches(sampler, min(max(batch_size // samples, 1), len(examples)))
  starts = range(0, len(examples), size)
  batches = [padded_batch(collate, examples, start, size) for start in starts]
  columns, records, params = [], [], sampler.place(params)
  for start, batch in zip(starts, batches, strict=True):
    check_stop(stop)
    indices = np.arange(start, start + size)
    keys = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(sample_key, indices)
    scored = sample_and_score(
      sampler,
      runner,
      params,
      batch,
      keys,
      temperature,
      samples,
      extract_answer if samples > 1 else None,
    )
    records += make_samples(
      sampler.tokenizer,
      scored.prompts,
      scored.rollout,
      scored.results,
      limit=keep - len(records),
    )
    columns.append(_completion_columns(scored.completions, scored.results, scored.answers))
  values = _problem_values(_concatenate(columns), samples)
  estimates = jax.device_get(_bootstrap(np.stack(list(values.values())), bootstrap_key))
  rows = zip(*(x.tolist() for x in estimates), strict=True)
  return Evaluation(
    estimates=dict(zip(values, map(Estimate._make, rows), strict=True)),
    problems=len(examples),
    samples=records,
  )


def evaluation_means(
  completions: Completions, results: RewardResults, samples: int
) -> dict[str, float]:
  """Computes the means of an evaluation without intervals and votes.

  Args:
    completions: lengths of the completions.
    results: their scores.
    samples: number of completions per problem.

  Returns:
    Means over problems by their names in `Evaluation.estimates`; nan where there are none.
  """
  values = _problem_values(_completion_columns(completions, results), samples)
  return {name: float(_finite_mean(x[None])[0]) for name, x in values.items()}


def _completion_columns(
  completions: Completions, results: RewardResults, answers: np.ndarray | None = None
) -> dict[str, np.ndarray]:
  """Values of each completion, `[N, G]` by name; nan where a score is missing."""
  columns = {
    "length": completions.lengths,
    "truncated": ~completions.finished,
    "unscorable": ~results.valid,
    "reward/mean": np.where(results.valid, results.rewards, np.nan),
  }
  if answers is not None:
    columns["answer"] = answers
  return columns | {f"reward/{name}": x for name, x in results.scores.items()}


def _concatenate(batches: Sequence[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
  """Joins columns of batches; a batch may lack a score that others have."""
  names = dict.fromkeys(name for batch in batches for name in batch)
  missing = [np.full(batch["length"].shape, np.nan) for batch in batches]
  return {
    name: np.concatenate(
      [batch.get(name, nan) for batch, nan in zip(batches, missing, strict=True)]
    )
    for name in names
  }


def _problem_values(columns: dict[str, np.ndarray], samples: int) -> dict[str, np.ndarray]:
  """Contribution of each problem to every mean, `[N]`; nan where it has none."""
  answers = columns.pop("answer", None)
  accuracy = columns.get("reward/accuracy")
  outcome = columns["reward/mean"] if accuracy is None else accuracy
  valid = np.isfinite(outcome)
  right = valid & (outcome >= 1)
  if accuracy is None:
    accuracy = np.where(valid, right, np.nan)
  powers = [2**i for i in range(samples.bit_length()) if 2**i < samples]
  values = {"accuracy": _finite_mean(accuracy)}
  for k in (*powers, samples):
    values[f"pass@{k}"] = np.asarray(_pass_at_k(right, valid, k))
  for k in (*powers, samples):
    if k > 1 and answers is not None:
      rows = zip(answers, right, valid, strict=True)
      votes = [majority_at_k(list(a[ok]), list(r[ok]), k) for a, r, ok in rows]
      values[f"majority@{k}"] = np.array(votes)
  return values | {name: _finite_mean(x) for name, x in columns.items()}


def _finite_mean(values: np.ndarray) -> np.ndarray:
  """Mean over the finite values of each problem, nan if there are none."""
  finite = np.isfinite(values)
  count = finite.sum(-1)
  total = np.where(finite, values, 0).sum(-1, dtype=np.float64)
  return np.where(count > 0, total / np.maximum(count, 1), np.nan)
