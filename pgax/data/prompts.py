"""Examples to padded arrays, never silently cut."""

import dataclasses
from collections.abc import Sequence

import numpy as np
from transformers import PreTrainedTokenizerFast

from pgax.data.chat import Chat
from pgax.data.tokenizer import encode
from pgax.types import Example


@dataclasses.dataclass(frozen=True, eq=False)
class PromptBatch:
  """A batch of prompts, with the examples that they come from.

  Attributes:
    examples: `N` examples.
    tokens: `[N, P]` int32, right-padded with 0.
    mask: `[N, P]` bool.
  """

  examples: tuple[Example, ...]
  tokens: np.ndarray
  mask: np.ndarray


def pad(rows: Sequence[Sequence[int]], length: int) -> tuple[np.ndarray, np.ndarray]:
  """Right-pads rows of ids to `[len(rows), length]` tokens and mask."""
  tokens = np.zeros((len(rows), length), np.int32)
  mask = np.zeros((len(rows), length), bool)
  for index, row in enumerate(rows):
    tokens[index, : len(row)] = row
    mask[index, : len(row)] = True
  return tokens, mask


def within(ids: list[int], limit: int, what: str, text: str, option: str) -> list[int]:
  """The ids, if they are at most so many; the error names the text and the option."""
  if len(ids) > limit:
    shown = text if len(text) <= 60 else f"{text[:57]}..."
    raise ValueError(
      f"{what} {shown!r} has {len(ids)} tokens; {option} allows {limit}. Raise the limit "
      "or leave the problem out: nothing is cut silently"
    )
  return ids


@dataclasses.dataclass(frozen=True)
class CollatePrompts:
  """Examples to a `PromptBatch`.

  Attributes:
    tokenizer: of the model.
    max_prompt_tokens: the width `P`; a longer prompt is an error that names it.
    chat: renders prompts as a chat; None gives them to the model as they are.
  """

  tokenizer: PreTrainedTokenizerFast
  max_prompt_tokens: int
  chat: Chat | None = None

  def encode(self, example: Example) -> list[int]:
    """Ids of the prompt, however many."""
    if self.chat:
      return self.chat.encode(self.tokenizer, example.prompt)
    return encode(self.tokenizer, example.prompt)

  def ids(self, example: Example) -> list[int]:
    """Ids of the prompt, within the limit."""
    ids = self.encode(example)
    if not ids:
      raise ValueError("a prompt has no token; it needs one at least")
    return within(
      ids, self.max_prompt_tokens, "prompt", example.prompt, "max_prompt_tokens"
    )

  def __call__(self, examples: Sequence[Example]) -> PromptBatch:
    rows = [self.ids(example) for example in examples]
    return PromptBatch(tuple(examples), *pad(rows, self.max_prompt_tokens))
