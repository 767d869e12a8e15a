"""Builds tasks from rows of files."""

import dataclasses
import hashlib
import numbers

import numpy as np

from pgax.data.fields import ParseFn
from pgax.data.records import Rows
from pgax.data.task import Task
from pgax.types import Example


@dataclasses.dataclass(frozen=True, eq=False)
class Problems:
  """Random access to the problems of a source, which are parsed when they are read.

  Attributes:
    rows: all rows of the source.
    parse: builds an example from a row.
    indices: `[problems]` int64, indices of the good rows.
    keys: `[problems]` uint64, hash of each prompt.
    bad_rows: location and fault of each bad row.
  """

  rows: Rows
  parse: ParseFn
  indices: np.ndarray
  keys: np.ndarray
  bad_rows: tuple[str, ...]

  def __len__(self) -> int:
    return len(self.indices)

  def __getitem__(self, position: int) -> Example:
    return self.parse(self.rows[int(self.indices[position])])


def prompt_key(prompt: str) -> int:
  """Returns a 64-bit hash of a prompt, which is the same in every process."""
  return int.from_bytes(hashlib.blake2b(prompt.encode(), digest_size=8).digest(), "little")


def read_problems(rows: Rows, parse: ParseFn, max_bad_rows: int = 0) -> Problems:
  """Parses all rows once to find the good ones.

  Args:
    rows: rows of a source.
    parse: builds an example from a row, or raises ValueError if the row is bad.
    max_bad_rows: maximum number of bad rows to skip.

  Returns:
    The `Problems`.

  Raises:
    ValueError: if there are more bad rows; the message has the location and fault of the
      first one.
  """
  if max_bad_rows < 0:
    raise ValueError(f"max_bad_rows is {max_bad_rows}; it must be at least 0")
  indices, keys, bad_rows = [], [], []
  for index in range(len(rows)):
    try:
      key = prompt_key(parse(rows[index]).prompt)
    except ValueError as error:
      # The first line of a message says what is wrong.
      lines = str(error).strip().splitlines() or ["no reason is given"]
      kind = "" if type(error) is ValueError else f"{type(error).__name__}: "
      bad_rows.append(f"{rows.where(index)}: {kind}{lines[0]}")
      if len(bad_rows) > max_bad_rows:
        message = bad_rows[-1]
        if max_bad_rows:
          message += (
            f"; max_bad_rows allows {max_bad_rows} bad rows, and this is one more. "
          )
          message += f"The first: {bad_rows[0]}"
        raise ValueError(message) from None
      continue
    indices.append(index)
    keys.append(key)
  arrays = np.asarray(indices, np.int64), np.asarray(keys, np.uint64)
  return Problems(rows, parse, *arrays, tuple(bad_rows))


def from_rows(
  train: Rows, held_out: Rows | float, parse: ParseFn, max_bad_rows: int = 0
) -> Task:
  """Builds a task from two sources of rows, or from one that is split.

  In a config, `entry(from_rows, train=entry(tfds, name="gsm8k", split="train", ...), ...,
  parse=entry(Fields, prompt="question", ground_truth="short_answer"))`.

  Args:
    train: rows of the training problems, such as `json_lines(...)` or `tfds(...)`.
    held_out: rows of the held-out problems; or a number in (0, 1), the approximate fraction
      of the first source's problems to hold out. A hash of the prompt decides on the split
      of a problem, so the split does not change when other problems are added.
    parse: builds an example from a row, such as `Fields(...)`.
    max_bad_rows: maximum number of bad rows to skip in each source; see `read_problems`.

  Returns:
    A `Task`; its `bad_rows` are those that were skipped.

  Raises:
    ValueError: if there are too many bad rows, a split is empty, the fraction is out of
      range, or a prompt is in both sources.
  """
  problems = read_problems(train, parse, max_bad_rows)
  if isinstance(held_out, numbers.Real):
    splits = _split(problems, held_out)
    bad_rows = problems.bad_rows
  else:
    splits = problems, read_problems(held_out, parse, max_bad_rows)
    bad_rows = problems.bad_rows + splits[1].bad_rows
    _check_overlap(*splits)
  for name, split in zip(("train", "held_out"), splits, strict=True):
    if not len(split):
      raise ValueError(
        f"the task's split {name!r} is empty: none of {len(split.rows)} rows is a problem "
        f"of this split; the first row would be {split.rows.where(0)}"
      )
  return Task(*splits, bad_rows=bad_rows)


def _split(problems: Problems, fraction: float) -> tuple[Problems, Problems]:
  if not 0 < fraction < 1:
    raise ValueError(
      f"held_out is {fraction}; it must be rows, or a fraction above 0 and below 1"
    )
  is_held_out = problems.keys < float(fraction) * 2.0**64
  if len(problems) and is_held_out.all() == is_held_out.any():
    raise ValueError(
      f"held_out is {fraction}, which leaves one split of {len(problems)} problems empty; "
      "add problems or change the fraction"
    )
  return tuple(
    dataclasses.replace(problems, indices=problems.indices[x], keys=problems.keys[x])
    for x in (~is_held_out, is_held_out)
  )


def _check_overlap(train: Problems, held_out: Problems) -> None:
  _, positions, _ = np.intersect1d(train.keys, held_out.keys, return_indices=True)
  if len(positions):
    first = min(positions)
    where = train.rows.where(int(train.indices[first]))
    raise ValueError(
      f"{len(positions)} questions are in both splits, such as "
      f"{train[first].prompt!r} ({where}); the splits must not overlap"
    )
