"""How often a policy solves each prompt: kept in a file, and a filter by it.

Measured once, by `experiments.solve_rates`, and not in the run that trains: what a run
draws from is then a list that stays the same, and its position one number, so that a run
goes on bit for bit. (An algorithm's `refill` drops such groups within a run.)
"""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from pgax.data.mixture import subset
from pgax.data.task import Task


def read_solve_rates(path: str | Path) -> dict[str, float | None]:
  """Reads what `experiments.solve_rates` wrote.

  Args:
    path: of a file of JSON lines with `prompt` and `rate`; the first is of the measurement.

  Returns:
    Of every prompt the fraction of its completions that were right; None where none could
    be scored.

  Raises:
    ValueError: if it is no such file; it names the line.
    OSError: if it can't be read.
  """
  rates = {}
  # Only a newline ends a row: prompts may hold other line separators.
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
        f"null, as experiments.solve_rates writes it; {type(error).__name__}: {error}"
      ) from None
    rates[prompt] = rate
  return rates


def select(rates: Mapping[str, float | None], low: float, high: float) -> frozenset[str]:
  """Prompts whose rate is above `low` and below `high`."""
  return frozenset(
    prompt for prompt, rate in rates.items() if rate is not None and low < rate < high
  )


def filtered(task: Task, path: str, low: float = 0.0, high: float = 1.0) -> Task:
  """A task without the training problems that are always or never solved.

  A group of equal rewards teaches nothing to an algorithm that compares within groups. The
  held-out problems stay as they are. In a config, `entry(filtered, task=entry(...), ...)`.

  Args:
    task: the whole task.
    path: of a file that `experiments.solve_rates` wrote.
    low: a prompt stays if its rate is above this, in [0, 1).
    high: and below this, in (0, 1]; 1 leaves out what is always solved.

  Returns:
    A `Task`; its `filtered` counts the problems left out, those without a rate included.

  Raises:
    ValueError: if the bounds are not in order, the file is no such file, or nothing is
      left, of a part of a mixture either.
    OSError: if the file can't be read.
  """
  if not 0 <= low < high <= 1:
    raise ValueError(f"low is {low} and high is {high}; it must be 0 <= low < high <= 1")
  rates = read_solve_rates(path)
  wanted, train = select(rates, low, high), task.train
  kept = np.asarray([i for i in range(len(train)) if train[i].prompt in wanted], np.int64)
  if not len(kept):
    raise ValueError(
      f"{path} has the rates of {len(rates)} prompts, and none of the {len(train)} "
      f"training problems is among those above {low} and below {high}"
    )
  left_out = len(train) - len(kept)
  try:
    some = subset(train, kept)
  except ValueError as error:
    raise ValueError(f"{error}, of rates above {low} and below {high} in {path}") from None
  return dataclasses.replace(task, train=some, filtered=task.filtered + left_out)
