"""Filters training problems by how often a policy solves them.

`experiments.solve_rates` measures the rates once and writes them to a file. A training run
then draws from a fixed list, and its position is one number, so the run resumes bit for
bit. (An algorithm's `dynamic_sampling` drops such groups within a run instead.)
"""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from pgax.data.mixture import subset
from pgax.data.task import Task


def read_solve_rates(path: str | Path) -> dict[str, float | None]:
  """Reads a file of `experiments.solve_rates`.

  Args:
    path: JSON Lines file. The first line describes the measurement; every other line has
      `prompt` and `rate`.

  Returns:
    The fraction of right completions, keyed by prompt; None if no completion of a prompt
    could be scored.

  Raises:
    ValueError: if a line is invalid; the message names it.
    OSError: if the file cannot be read.
  """
  rates = {}
  # Only a newline ends a row, because prompts may contain other line separators.
  lines = Path(path).read_text(encoding="utf-8").split("\n")
  for number, line in enumerate(lines[1:], start=2):
    if not line and number == len(lines):
      continue
    try:
      row = json.loads(line)
      prompt, rate = row["prompt"], row["rate"]
      if not (rate is None or 0 <= rate <= 1):
        raise ValueError(f"rate is {rate}")
    except (KeyError, TypeError, ValueError) as error:
      raise ValueError(
        f"{path}:{number}: expected an object with 'prompt' and a 'rate' in [0, 1] or "
        f"null, as experiments.solve_rates writes them; {type(error).__name__}: {error}"
      ) from None
    rates[prompt] = rate
  return rates


def select(rates: Mapping[str, float | None], low: float, high: float) -> frozenset[str]:
  """Returns the prompts whose rate is above `low` and below `high`."""
  return frozenset(
    prompt for prompt, rate in rates.items() if rate is not None and low < rate < high
  )


def filtered(task: Task, path: str, low: float = 0.0, high: float = 1.0) -> Task:
  """Removes the training problems that a policy always or never solves.

  An algorithm that compares completions within groups learns nothing from a group of equal
  rewards. Held-out problems are not filtered. In a config,
  `entry(filtered, task=entry(...), ...)`.

  Args:
    task: the task.
    path: file that `experiments.solve_rates` wrote.
    low: lower bound of the rates to keep, exclusive, in [0, 1).
    high: upper bound of the rates to keep, exclusive, in (0, 1].

  Returns:
    A `Task`. Its `filtered` counts the removed problems, including those without a rate.

  Raises:
    ValueError: if the bounds are out of order, the file is invalid, or no training problem,
      or none of a part of a mixture, remains.
    OSError: if the file cannot be read.
  """
  if not 0 <= low < high <= 1:
    raise ValueError(
      f"low is {low} and high is {high}; they must satisfy 0 <= low < high <= 1"
    )
  rates = read_solve_rates(path)
  prompts, train = select(rates, low, high), task.train
  selected = [i for i in range(len(train)) if train[i].prompt in prompts]
  if not selected:
    raise ValueError(
      f"{path} has the rates of {len(rates)} prompts, but none of the {len(train)} "
      f"training problems has a rate above {low} and below {high}"
    )
  removed = len(train) - len(selected)
  try:
    remaining = subset(train, np.asarray(selected, np.int64))
  except ValueError as error:
    raise ValueError(
      f"{error} with a rate above {low} and below {high} in {path}"
    ) from None
  return dataclasses.replace(task, train=remaining, filtered=task.filtered + removed)
