"""Tasks of problems that are read from files."""

import dataclasses
import hashlib
import numbers

import numpy as np

from pgax.data.fields import GSM8KFields, ParseFn
from pgax.data.rows import Rows, json_lines
from pgax.data.task import Task
from pgax.types import Example


@dataclasses.dataclass(frozen=True, eq=False)
class Problems:
  """The rows of a source that make problems, in random access; made when asked for.

  Attributes:
    rows: all rows.
    parse: makes a problem of a row.
    indices: `[problems]` int64, of the rows that make one.
    keys: `[problems]` uint64, a hash of every prompt.
    bad_rows: where each of the others stands, and what is wrong with it.
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
  """A hash of a prompt, 64 bits, the same in every process."""
  return int.from_bytes(hashlib.blake2b(prompt.encode(), digest_size=8).digest(), "little")


def read_problems(rows: Rows, parse: ParseFn, max_bad_rows: int = 0) -> Problems:
  """Goes through all rows once, and keeps the places of those that make problems.

  Args:
    rows: of a source.
    parse: makes a problem of a row; a ValueError makes the row a bad one.
    max_bad_rows: how many bad rows are skipped before they are an error.

  Returns:
    The `Problems`.

  Raises:
    ValueError: for more bad rows than that; it names the first one's place and fault.
  """
  if max_bad_rows < 0:
    raise ValueError(f"max_bad_rows is {max_bad_rows}; it must be at least 0")
  indices, keys, bad_rows = [], [], []
  for index in range(len(rows)):
    try:
      key = prompt_key(parse(rows[index]).prompt)
    except ValueError as error:
      # Of those that have messages of several lines, the first says what is wrong.
      said = str(error).strip().splitlines() or ["no reason is given"]
      kind = "" if type(error) is ValueError else f"{type(error).__name__}: "
      bad_rows.append(f"{rows.where(index)}: {kind}{said[0]}")
      if len(bad_rows) > max_bad_rows:
        told = f"; max_bad_rows allows {max_bad_rows}, and this is one more. The first: "
        raise ValueError(bad_rows[-1] + (told + bad_rows[0]) * bool(max_bad_rows)) from None
      continue
    indices.append(index)
    keys.append(key)
  kept = np.asarray(indices, np.int64), np.asarray(keys, np.uint64)
  return Problems(rows, parse, *kept, tuple(bad_rows))


def from_rows(
  train: Rows, held_out: Rows | float, parse: ParseFn, max_bad_rows: int = 0
) -> Task:
  """A task from two sources of rows, or from one that is divided.

  In a config, `entry(from_rows, train=entry(tfds, name="gsm8k", split="train", ...), ...,
  parse=entry(Fields, prompt="question", ground_truth="short_answer"))`.

  Args:
    train: rows of the training problems, such as `json_lines(...)` or `tfds(...)`.
    held_out: rows of the problems to be judged by; or a number in (0, 1), about which
      fraction of the first source's problems is held out. A hash of its prompt decides on
      which side a problem is, so that it stays there when others are added.
    parse: makes a problem of a row, such as `Fields(...)`.
    max_bad_rows: how many bad rows of each source are skipped; see `read_problems`.

  Returns:
    A `Task`; its `bad_rows` are those that were skipped.

  Raises:
    ValueError: for a bad row too many, a split without problems, a fraction that is none,
      or a prompt that stands in both sources.
  """
  whole = read_problems(train, parse, max_bad_rows)
  if isinstance(held_out, numbers.Real):
    parts = _divided(whole, held_out)
    bad_rows = whole.bad_rows
  else:
    parts = whole, read_problems(held_out, parse, max_bad_rows)
    bad_rows = whole.bad_rows + parts[1].bad_rows
    _check_overlap(*parts)
  for name, part in zip(("train", "held_out"), parts, strict=True):
    if not len(part):
      raise ValueError(
        f"the task's split {name!r} is empty: of {len(part.rows)} rows none makes a "
        f"problem of it, where the first would be {part.rows.where(0)}"
      )
  return Task(*parts, bad_rows=bad_rows)


def _divided(problems: Problems, fraction: float) -> tuple[Problems, Problems]:
  if not 0 < fraction < 1:
    raise ValueError(
      f"held_out is {fraction}; it must be rows, or a fraction above 0 and below 1"
    )
  aside = problems.keys < float(fraction) * 2.0**64
  if len(problems) and aside.all() == aside.any():
    raise ValueError(
      f"held_out is {fraction}, which leaves one side of {len(problems)} problems empty; "
      "there must be more of them, or another fraction"
    )
  return tuple(
    dataclasses.replace(problems, indices=problems.indices[x], keys=problems.keys[x])
    for x in (~aside, aside)
  )


def _check_overlap(train: Problems, held_out: Problems) -> None:
  _, positions, _ = np.intersect1d(train.keys, held_out.keys, return_indices=True)
  if len(positions):
    first = min(positions)
    where = train.rows.where(int(train.indices[first]))
    raise ValueError(
      f"{len(positions)} questions stand in both splits, such as "
      f"{train[first].prompt!r} ({where}); the splits must not overlap"
    )


def gsm8k(
  train_path: str,
  held_out_path: str,
  template: str = GSM8KFields.template,
  max_bad_rows: int = 0,
) -> Task:
  """Grade-school maths (arXiv 2110.14168) from its two original files.

  Args:
    train_path: file of the training problems, as JSON lines; see `GSM8KFields`.
    held_out_path: file of the problems to be judged by.
    template: the prompt, with `{prompt}` where the question stands.
    max_bad_rows: how many bad rows of each file are skipped; see `read_problems`.

  Returns:
    A `Task`.

  Raises:
    ValueError: for a bad row too many, a file without problems, or a question that stands
      in both files.
    OSError: if a file can't be read.
  """
  parse = GSM8KFields(template)
  return from_rows(json_lines(train_path), json_lines(held_out_path), parse, max_bad_rows)
