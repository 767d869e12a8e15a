"""Collates prompts into padded arrays, without silent truncation."""

import dataclasses
from collections.abc import Sequence

import numpy as np
from transformers import PreTrainedTokenizerFast

from pgax.data.chat import Chat
from pgax.data.tokenizer import encode
from pgax.types import Example


@dataclasses.dataclass(frozen=True, eq=False)
class PromptBatch:
  """A batch of prompts and their examples.

  Attributes:
    examples: `N` examples.
    tokens: `[N, P]` int32, right-padded with 0.
    mask: `[N, P]` bool, true on real tokens.
  """

  examples: tuple[Example, ...]
  tokens: np.ndarray
  mask: np.ndarray

  def take(self, rows: np.ndarray) -> "PromptBatch":
    """Returns some prompts of the batch, by index."""
    examples = tuple(self.examples[row] for row in rows)
    return PromptBatch(examples, self.tokens[rows], self.mask[rows])


def join_prompts(batches: Sequence[PromptBatch]) -> PromptBatch:
  """Joins several batches of prompts."""
  return PromptBatch(
    examples=tuple(example for x in batches for example in x.examples),
    tokens=np.concatenate([x.tokens for x in batches]),
    mask=np.concatenate([x.mask for x in batches]),
  )


def pad(rows: Sequence[Sequence[int]], length: int) -> tuple[np.ndarray, np.ndarray]:
  """Right-pads rows of ids to `[len(rows), length]` tokens and mask."""
  tokens = np.zeros((len(rows), length), np.int32)
  mask = np.zeros((len(rows), length), bool)
  for index, row in enumerate(rows):
    tokens[index, : len(row)] = row
    mask[index, : len(row)] = True
  return tokens, mask


def check_length(
  ids: list[int], limit: int, kind: str, text: str, option: str
) -> list[int]:
  """Checks that ids are within a limit.

  Args:
    ids: token ids.
    limit: maximum number of ids.
    kind: kind of text, for the error message.
    text: text of the ids, for the error message.
    option: name of the limit, for the error message.

  Returns:
    The ids.

  Raises:
    ValueError: if there are too many ids.
  """
  if len(ids) > limit:
    excerpt = text if len(text) <= 60 else f"{text[:57]}..."
    raise ValueError(
      f"{kind} {excerpt!r} has {len(ids)} tokens; {option} allows {limit}. Raise the limit "
      "or remove the problem: nothing is truncated silently"
    )
  return ids


@dataclasses.dataclass(frozen=True)
class CollatePrompts:
  """Collates examples into a `PromptBatch`.

  Attributes:
    tokenizer: tokenizer of the model.
    max_prompt_tokens: width `P` in tokens; a longer prompt raises ValueError.
    chat: renders prompts as a chat; None encodes them as they are.
  """

  tokenizer: PreTrainedTokenizerFast
  max_prompt_tokens: int
  chat: Chat | None = None

  def encode(self, example: Example) -> list[int]:
    """Returns the ids of the prompt, without checking the limit."""
    if self.chat:
      return self.chat.encode(self.tokenizer, example.prompt)
    return encode(self.tokenizer, example.prompt)

  def ids(self, example: Example) -> list[int]:
    """Returns the ids of the prompt; raises ValueError over the limit."""
    ids = self.encode(example)
    if not ids:
      raise ValueError("a prompt has no tokens; it needs at least one")
    return check_length(
      ids, self.max_prompt_tokens, "prompt", example.prompt, "max_prompt_tokens"
    )

  def __call__(self, examples: Sequence[Example]) -> PromptBatch:
    rows = [self.ids(example) for example in examples]
    return PromptBatch(tuple(examples), *pad(rows, self.max_prompt_tokens))
