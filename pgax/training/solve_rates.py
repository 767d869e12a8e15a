"""How often a policy solves each of many problems: what `data.filtered` goes by."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import jax
import numpy as np

from pgax.data.prompts import CollatePrompts
from pgax.data.task import fingerprint
from pgax.rewards.pool import RewardRunner as Scorer
from pgax.training.errors import UserError
from pgax.training.metrics import read_lines
from pgax.training.rollout import score
from pgax.training.sampler import Sampler
from pgax.types import Example, PyTree


def measure(
  sampler: Sampler,
  params: PyTree,
  examples: Sequence[Example],
  collate: CollatePrompts,
  scorer: Scorer,
  path: Path,
  *,
  samples: int,
  temperature: float,
  batch_size: int,
  seed: int = 0,
  record: Mapping[str, object] | None = None,
  progress: Callable[[int], None] = lambda done: None,
) -> list[float | None]:
  """Samples completions of every problem, and writes the fraction of those that are right.

  The file grows batch by batch; a call with the same arguments goes on with one that an
  interrupted call left, and ends with the same file.

  Args:
    sampler: draws completions.
    params: of the policy.
    examples: the problems.
    collate: makes batches of them.
    scorer: applies the reward function.
    path: of the file: JSON lines, the first of the measurement, then `prompt` and `rate`.
    samples: completions of each problem.
    temperature: of the policy.
    batch_size: problems at a time, rounded up to a multiple of the devices.
    seed: of the random draws.
    record: what else the first line says, as JSON values.
    progress: told the number of problems done so far.

  Returns:
    The rate of every problem: the mean of the score `accuracy`, or of the reward where
    there is no such score, over the completions that could be scored; None where there are
    none.

  Raises:
    UserError: if the file holds another measurement, or a rate is not in [0, 1].
  """
  batch_size = -(-batch_size // sampler.mesh.size) * sampler.mesh.size
  head = {
    "problems": fingerprint(examples),
    "samples": samples,
    "temperature": temperature,
    "batch_size": batch_size,
    "seed": seed,
  } | dict(record or {})
  rows = _begun(path, head)
  if len(rows) < len(examples):  # whole batches, so that they draw what they would have
    rows = rows[: len(rows) // batch_size * batch_size]
  temporary = path.with_name(f".{path.name}")
  _write(temporary, [head, *rows], "w")
  temporary.replace(path)
  for start in range(len(rows), len(examples), batch_size):
    some = [examples[i] for i in range(start, min(start + batch_size, len(examples)))]
    batch = collate(some + [some[-1]] * (batch_size - len(some)))
    key = jax.random.fold_in(jax.random.key(seed), start // batch_size)
    rollout = sampler(params, batch, key, temperature, samples)
    scores = score(scorer, sampler.tokenizer, batch, rollout)
    right = scores.parts.get("accuracy", scores.rewards)
    valid = scores.valid & np.isfinite(right)
    new = [
      {"prompt": example.prompt, "rate": float(right[n][valid[n]].mean(dtype=np.float64))}
      if valid[n].any()
      else {"prompt": example.prompt, "rate": None}
      for n, example in enumerate(some)
    ]
    _check_rates(new)
    _write(path, new, "a")
    rows += new
    progress(len(rows))
  return [row["rate"] for row in rows]


def _begun(path: Path, head: Mapping[str, object]) -> list[dict]:
  """Rows of an interrupted measurement, or none."""
  if not path.exists() or not path.stat().st_size:
    return []
  found = read_lines(path)
  if not found or found[0] != head:
    before = found[0] if found else {}
    names = sorted(x for x in before.keys() | head.keys() if before.get(x) != head.get(x))
    raise UserError(
      f"{path} is of another measurement, or of none: it differs in {', '.join(names)}. "
      "Give another file, or remove it"
    )
  return found[1:]


def _check_rates(rows: Sequence[Mapping]) -> None:
  for row in rows:
    if row["rate"] is not None and not 0 <= row["rate"] <= 1:
      raise UserError(
        f"the mean reward of {row['prompt']!r} is {row['rate']}; a rate of solving is in "
        "[0, 1], and the reward function tells no score 'accuracy'"
      )


def _write(path: Path, rows: Sequence[Mapping], mode: str) -> None:
  with path.open(mode, encoding="utf-8") as file:
    for row in rows:
      file.write(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n")
