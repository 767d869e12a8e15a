"""Preference pairs: a prompt with a chosen and a rejected completion."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pgax.data.demonstrations import CollateDemonstrations
from pgax.data.prompts import PromptBatch, pad
from pgax.data.records import json_lines
from pgax.types import Example

_FIELDS = ("prompt", "chosen", "rejected")


@dataclasses.dataclass(frozen=True)
class Preference:
  """A preference pair, as text.

  Attributes:
    prompt: prompt of both completions.
    chosen: preferred completion.
    rejected: other completion.
  """

  prompt: str
  chosen: str
  rejected: str


@dataclasses.dataclass(frozen=True)
class Preferences:
  """Pairs to train on and pairs to evaluate on.

  Attributes:
    train: training pairs.
    held_out: pairs that accuracy is measured on.
  """

  train: Sequence[Preference]
  held_out: Sequence[Preference]

  def __post_init__(self):
    for name, pairs in (("train", self.train), ("held_out", self.held_out)):
      if not len(pairs):
        raise ValueError(f"the split {name!r} of the preferences is empty")


def read_preferences(path: str | Path) -> list[Preference]:
  """Reads preference pairs from a JSON Lines file.

  Args:
    path: UTF-8 file. Each line is an object with the nonempty strings `prompt`, `chosen`
      and `rejected`; other fields are ignored.

  Returns:
    One `Preference` per line.

  Raises:
    ValueError: if a line is not JSON, lacks a field, or has equal completions; the message
      names the file and the line.
    OSError: if the file cannot be read.
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
        raise ValueError(
          f"{rows.where(index)}: {name} is {value!r}; it must be a nonempty string"
        )
      try:
        value.encode("utf-8")
      except UnicodeEncodeError as error:  # JSON can contain half of a surrogate pair
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
  """Reads preference pairs from two files; see `read_preferences`.

  Args:
    train_path: file of the training pairs.
    held_out_path: file of the held-out pairs.

  Returns:
    `Preferences`.

  Raises:
    ValueError: if a file has a bad line or no pairs, or a pair is in both files.
    OSError: if a file cannot be read.
  """
  train, held_out = read_preferences(train_path), read_preferences(held_out_path)
  overlap = set(train) & set(held_out)
  if overlap:
    line = min(map(train.index, overlap)) + 1
    raise ValueError(
      f"{len(overlap)} pairs are in both splits, such as that of "
      f"{train[line - 1].prompt!r} ({train_path}:{line}); the splits must not overlap"
    )
  return Preferences(train, held_out)


@dataclasses.dataclass(frozen=True, eq=False)
class PreferenceBatch:
  """A batch of preference pairs.

  Attributes:
    prompts: `N` prompts.
    tokens: `[N, 2, T]` int32, chosen and rejected completion with EOS, right-padded with 0.
    mask: `[N, 2, T]` bool, true on real tokens.
  """

  prompts: PromptBatch
  tokens: np.ndarray
  mask: np.ndarray


@dataclasses.dataclass(frozen=True)
class CollatePreferences:
  """Collates pairs into a `PreferenceBatch`.

  Attributes:
    completions: collates prompts and completions; a completion over its limit raises
      ValueError.
  """

  completions: CollateDemonstrations

  def ids(self, pair: Preference) -> tuple[list[int], list[int]]:
    """Returns the ids of both completions, EOS included, within the limit."""
    examples = [Example(pair.prompt, "", text) for text in (pair.chosen, pair.rejected)]
    return tuple(self.completions.ids(example) for example in examples)

  def __call__(self, pairs: Sequence[Preference]) -> PreferenceBatch:
    rows = [ids for pair in pairs for ids in self.ids(pair)]
    width = self.completions.max_completion_tokens
    tokens, mask = (x.reshape(len(pairs), 2, width) for x in pad(rows, width))
    prompts = self.completions.prompts([Example(pair.prompt, "") for pair in pairs])
    return PreferenceBatch(prompts, tokens, mask)
