"""Stored completions, with the tokens that were sampled and their log-probabilities."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pgax.data.records import json_lines

_FIELDS = ("prompt", "prompt_ids", "ids", "logp", "sample_logp", "reward", "finished")
_ROUNDING = 1e-5  # nats by which a log-probability may be above 0


@dataclasses.dataclass(frozen=True)
class Completion:
  """A stored completion.

  Attributes:
    prompt: text of the problem's prompt.
    prompt_ids: ids of the tokens that the policy read, such as a rendered chat.
    ids: ids of the tokens that were sampled, EOS included.
    logp: log-probability of every token under the policy that sampled it, in nats.
    sample_logp: log-probability of every token under the distribution that was sampled
      from, in nats.
    reward: reward; None if the completion could not be scored.
    finished: whether the completion ended before the length limit.
  """

  prompt: str
  prompt_ids: tuple[int, ...]
  ids: tuple[int, ...]
  logp: tuple[float, ...]
  sample_logp: tuple[float, ...]
  reward: float | None
  finished: bool


def read_completions(path: str | Path, group: int) -> list[tuple[Completion, ...]]:
  """Reads stored completions in groups of one prompt.

  Args:
    path: JSON Lines file, such as the `samples.jsonl` of a run. A line without the ids of
      its tokens, or of the split `held_out`, is skipped.
    group: number of completions of a group, `G`. Completions of a prompt are grouped in
      their order; what is left over is dropped.

  Returns:
    Groups in the order of their first lines.

  Raises:
    ValueError: if a line is damaged, or there is no complete group; with the file.
    OSError: if the file cannot be read.
  """
  rows, by_prompt = json_lines(str(path)), {}
  for index in range(len(rows)):
    try:
      completion = _completion(rows[index])
    except (KeyError, TypeError, ValueError) as error:
      raise ValueError(
        f"{rows.where(index)}: {type(error).__name__}: {error}; a stored completion has "
        f"{', '.join(_FIELDS)}"
      ) from None
    if completion is not None:
      by_prompt.setdefault(completion.prompt_ids, []).append(completion)
  groups = [
    tuple(completions[start : start + group])
    for completions in by_prompt.values()
    for start in range(0, len(completions) - group + 1, group)
  ]
  if not groups:
    raise ValueError(
      f"{path} has no prompt with {group} stored completions (sampling.group_size); a run "
      "writes them with samples_every=1"
    )
  return groups


def _completion(row: Mapping[str, Any]) -> Completion | None:
  """Returns the completion of a row; None if it is none to learn from."""
  if "ids" not in row or row.get("split") == "held_out":
    return None
  values = {name: row[name] for name in _FIELDS}
  for name in ("prompt_ids", "ids"):
    values[name] = _ids(name, values[name])
  for name in ("logp", "sample_logp"):
    # A missing number is not a log-probability of 0.
    numbers = tuple(float(x) for x in values[name])
    if len(numbers) != len(values["ids"]) or not np.isfinite(numbers).all():
      raise ValueError(f"{name} must have a finite number for each of the ids")
    if max(numbers) > _ROUNDING:
      raise ValueError(f"{name} has {max(numbers)}; a log-probability is at most 0")
    values[name] = numbers
  if not isinstance(values["reward"], int | float | None):
    raise TypeError(f"reward is {values['reward']!r}; it must be a number or null")
  if not isinstance(values["finished"], bool):
    raise TypeError(f"finished is {values['finished']!r}; it must be true or false")
  return Completion(**values)


def _ids(name: str, ids: Sequence[int]) -> tuple[int, ...]:
  if not isinstance(ids, list) or not ids:
    raise ValueError(f"{name} is {ids!r}; it must be a list of token ids, and not empty")
  for token in ids:
    if type(token) is not int or token < 0:
      raise ValueError(f"{name} has {token!r}; a token id is a whole number from 0")
  return tuple(ids)


def check_completions(
  groups: Sequence[Sequence[Completion]], prompt: int, length: int, vocab_size: int
) -> None:
  """Checks that stored completions fit the limits of a run.

  Args:
    groups: groups from `read_completions`.
    prompt: maximum number of tokens in a prompt.
    length: maximum number of tokens in a completion.
    vocab_size: number of token ids.

  Raises:
    ValueError: with the number that is too large.
  """
  every = [completion for group in groups for completion in group]
  for what, largest, limit in (
    ("a prompt with tokens", max(len(x.prompt_ids) for x in every), prompt),
    ("a completion with tokens", max(len(x.ids) for x in every), length),
    ("a token id", max(max(*x.ids, *x.prompt_ids) for x in every), vocab_size - 1),
  ):
    if largest > limit:
      raise ValueError(
        f"the stored completions have {what} up to {largest}; at most {limit} is allowed "
        "(sampling.max_prompt_tokens, sampling.max_completion_tokens, model.vocab_size)"
      )
