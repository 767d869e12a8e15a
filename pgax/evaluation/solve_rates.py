"""Solve rates: how often a policy solves each problem, as input to `data.filtered`."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import jax
import numpy as np

from pgax.data.prompts import CollatePrompts
from pgax.data.task import fingerprint
from pgax.distributed.hosts import on_writer
from pgax.errors import UserError
from pgax.evaluation.batches import padded_batch, sample_and_score, whole_batches
from pgax.rewards.pool import RewardRunner
from pgax.rollout.sampler import Sampler
from pgax.rollout.scoring import RewardResults
from pgax.runs.json_lines import split_lines, write_lines
from pgax.types import Example, PyTree


def measure(
  sampler: Sampler,
  params: PyTree,
  examples: Sequence[Example],
  collate: CollatePrompts,
  runner: RewardRunner,
  path: Path,
  *,
  samples: int,
  temperature: float,
  batch_size: int,
  seed: int = 0,
  record: Mapping[str, object] | None = None,
  progress: Callable[[int], None] = lambda done: None,
) -> list[float | None]:
  """Samples completions of every problem and writes the fraction that is right.

  The file grows batch by batch. A call with the same arguments continues a file that an
  interrupted call left, and ends with the same file as an uninterrupted one.

  Args:
    sampler: samples completions.
    params: parameters of the policy.
    examples: the problems.
    collate: collates problems.
    runner: runs the reward function.
    path: JSON Lines file: first a description of the measurement, then `prompt` and
      `rate` of each problem.
    samples: number of completions per problem.
    temperature: sampling temperature.
    batch_size: number of problems at a time, rounded up to a multiple of the devices.
    seed: random seed.
    record: further JSON values for the first line.
    progress: called with the number of problems done so far.

  Returns:
    The rate of every problem: the mean of the score `accuracy`, or of the reward if there
    is no such score, over the completions that could be scored; None if there are none.

  Raises:
    UserError: if the file holds another measurement, or a rate is not in [0, 1].
  """
  batch_size = whole_batches(sampler, batch_size)
  head = {
    "problems": fingerprint(examples),
    "samples": samples,
    "temperature": temperature,
    "batch_size": batch_size,
    "seed": seed,
  } | dict(record or {})
  rates = on_writer(lambda: _begin(path, head, examples, batch_size))
  for start in range(len(rates), len(examples), batch_size):
    batch = padded_batch(collate, examples, start, batch_size)
    key = jax.random.fold_in(jax.random.key(seed), start // batch_size)
    scored = sample_and_score(sampler, runner, params, batch, key, temperature, samples)
    new = _rate_rows(batch.examples, scored.results)
    on_writer(lambda new=new: write_lines(path, new))
    rates += [row["rate"] for row in new]
    progress(len(rates))
  return rates


def _begin(
  path: Path, head: Mapping[str, object], examples: Sequence[Example], batch_size: int
) -> list[float | None]:
  """Begins the file, or continues it; returns the rates that it has."""
  rows = _saved_rows(path, head, examples)
  if len(rows) < len(examples):  # samples depend on the batch, so only whole ones are kept
    rows = rows[: len(rows) // batch_size * batch_size]
  temporary = path.with_name(f".{path.name}")
  write_lines(temporary, [head, *rows], "w")
  temporary.replace(path)
  return [row["rate"] for row in rows]


def _saved_rows(
  path: Path, head: Mapping[str, object], examples: Sequence[Example]
) -> list[dict]:
  """Rows of an interrupted measurement, if there is one."""
  if not path.exists() or not path.stat().st_size:
    return []
  lines, _ = split_lines(path)
  if not lines or lines[0] != head:
    saved = lines[0] if lines else {}
    names = sorted(x for x in saved.keys() | head.keys() if saved.get(x) != head.get(x))
    raise UserError(
      f"{path} holds another measurement, or none: it differs in {', '.join(names)}. "
      "Give another file, or remove it"
    )
  # A rate belongs to the problem at its index, so no line after a bad one can be used.
  pairs = itertools.takewhile(
    lambda pair: _is_rate_of(*pair), zip(lines[1:], examples, strict=False)
  )
  return [row for row, _ in pairs]


def _is_rate_of(row: Mapping[str, object], example: Example) -> bool:
  rate = row.get("rate", "")
  return row.get("prompt") == example.prompt and isinstance(rate, int | float | None)


def _rate_rows(examples: Sequence[Example], results: RewardResults) -> list[dict]:
  outcomes = results.scores.get("accuracy", results.rewards)
  valid = results.valid & np.isfinite(outcomes)
  rows = []
  for n, example in enumerate(examples):
    rate = None
    if valid[n].any():
      rate = float(outcomes[n][valid[n]].mean(dtype=np.float64))
    if rate is not None and not 0 <= rate <= 1:
      raise UserError(
        f"the mean reward of {example.prompt!r} is {rate}; a solve rate is in [0, 1]. "
        "Return a score 'accuracy' from the reward function"
      )
    rows.append({"prompt": example.prompt, "rate": rate})
  return rows
