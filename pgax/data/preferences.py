"""Preference pairs: a prompt, a completion that is preferred, and one that is not."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pgax.data.demonstrations import CollateDemonstrations
from pgax.data.prompts import PromptBatch, pad
from pgax.data.rows import json_lines
from pgax.tasks.addition import AdditionProblems, addition, worked_sum
from pgax.types import Example

_FIELDS = ("prompt", "chosen", "rejected")


@dataclasses.dataclass(frozen=True)
class Preference:
  """A pair, as text.

  Attributes:
    prompt: of both completions.
    chosen: the preferred one.
    rejected: the other one.
  """

  prompt: str
  chosen: str
  rejected: str


@dataclasses.dataclass(frozen=True)
class Preferences:
  """Pairs to train on and pairs to be judged by.

  Attributes:
    train: the training pairs.
    held_out: the pairs that accuracy is measured on.
  """

  train: Sequence[Preference]
  held_out: Sequence[Preference]

  def __post_init__(self):
    for name, pairs in (("train", self.train), ("held_out", self.held_out)):
      if not len(pairs):
        raise ValueError(f"the split {name!r} of the preferences is empty")


def read_preferences(path: str | Path) -> list[Preference]:
  """Reads preference pairs, one JSON object a line.

  Args:
    path: a file in UTF-8 whose lines have the strings `prompt`, `chosen` and `rejected`,
      none of them empty; what else they have is left out.

  Returns:
    One `Preference` a line.

  Raises:
    ValueError: for a row that is not JSON, lacks a field or prefers nothing; it names the
      file and the line.
    OSError: if the file can't be read.
  """
  pairs = []
  rows = json_lines(str(path))
  for index in range(len(rows)):
    try:
      row = rows[index]
      values = [row[name] for name in _FIELDS]
    except (ValueError, KeyError) as error:
      raise ValueError(
        f"{rows.where(index)}: expected a JSON object with the strings "
        f"{', '.join(_FIELDS)}; {type(error).__name__}: {error}"
      ) from None
    for name, value in zip(_FIELDS, values, strict=True):
      if not isinstance(value, str) or not value:
        raise ValueError(f"{rows.where(index)}: {name} is {value!r}; it must be a string")
      try:
        value.encode("utf-8")
      except UnicodeEncodeError as error:  # JSON can spell half of a surrogate pair
        raise ValueError(
          f"{rows.where(index)}: {name} is not UTF-8: {error.reason}"
        ) from None
    pair = Preference(*values)
    if pair.chosen == pair.rejected:
      raise ValueError(f"{rows.where(index)}: chosen and rejected are the same")
    pairs.append(pair)
  if not pairs:
    raise ValueError(f"{path} has no preference pairs")
  return pairs


def preference_files(train_path: str, held_out_path: str) -> Preferences:
  """Pairs of two files; see `read_preferences`.

  Args:
    train_path: file of the training pairs.
    held_out_path: file of the pairs to be judged by.

  Returns:
    `Preferences`.

  Raises:
    ValueError: for a bad row, a file without pairs, or a pair that stands in both files.
    OSError: if a file can't be read.
  """
  train, held_out = read_preferences(train_path), read_preferences(held_out_path)
  both = set(train) & set(held_out)
  if both:
    line = min(map(train.index, both)) + 1
    raise ValueError(
      f"{len(both)} pairs stand in both splits, such as that of {train[line - 1].prompt!r} "
      f"({train_path}:{line}); the splits must not overlap"
    )
  return Preferences(train, held_out)


@dataclasses.dataclass(frozen=True, eq=False)
class _CarriedOrNot:
  """Random access to the pairs of one split of `addition_preferences`."""

  problems: AdditionProblems
  positions: np.ndarray

  def __len__(self) -> int:
    return len(self.positions)

  def __getitem__(self, position: int) -> Preference:
    digits = self.problems.digits
    at = int(self.positions[position])
    a, b = divmod(int(self.problems.indices[at]), 10**digits)
    chosen, rejected = (
      worked_sum(a, b, digits, draws=[0.0] * digits, forget_carry=forget)
      for forget in (0.0, 1.0)
    )
    return Preference(self.problems[at].prompt, chosen, rejected)


def addition_preferences(digits: int = 3) -> Preferences:
  """Sums with something to carry: the worked solution over the one that forgets to.

  Args:
    digits: number of digits of an operand, from 2 to 4; see `addition`.

  Returns:
    `Preferences` of the two splits of `addition`.

  Raises:
    ValueError: if `digits` is out of its range.
  """
  if not 2 <= digits <= 4:
    raise ValueError(f"digits is {digits}; allowed are 2 to 4")
  task = addition(digits)

  def pairs(problems: AdditionProblems) -> _CarriedOrNot:
    a, b = np.divmod(problems.indices, 10**digits)
    columns = 10 ** np.arange(digits - 1)[:, None]  # the last has nothing to carry to
    carries = (a // columns % 10 + b // columns % 10 >= 10).any(axis=0)
    return _CarriedOrNot(problems, np.flatnonzero(carries))

  return Preferences(pairs(task.train), pairs(task.held_out))


@dataclasses.dataclass(frozen=True, eq=False)
class PreferenceBatch:
  """A batch of pairs.

  Attributes:
    prompts: `N` prompts.
    tokens: `[N, 2, T]` int32, chosen and rejected with EOS, right-padded with 0.
    mask: `[N, 2, T]` bool.
  """

  prompts: PromptBatch
  tokens: np.ndarray
  mask: np.ndarray


@dataclasses.dataclass(frozen=True)
class CollatePreferences:
  """Pairs to a `PreferenceBatch`.

  Attributes:
    completions: how to collate either of them; one over the limit is an error.
  """

  completions: CollateDemonstrations

  def ids(self, pair: Preference) -> tuple[list[int], list[int]]:
    """Ids of chosen and rejected, EOS included, within the limit."""
    examples = [Example(pair.prompt, "", text) for text in (pair.chosen, pair.rejected)]
    return tuple(self.completions.ids(example) for example in examples)

  def __call__(self, pairs: Sequence[Preference]) -> PreferenceBatch:
    rows = [ids for pair in pairs for ids in self.ids(pair)]
    width = self.completions.max_tokens
    tokens, mask = (x.reshape(len(pairs), 2, width) for x in pad(rows, width))
    prompts = self.completions.prompts([Example(pair.prompt, "") for pair in pairs])
    return PreferenceBatch(prompts, tokens, mask)
