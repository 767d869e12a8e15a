"""Examples to padded arrays, never silently cut."""

import dataclasses
from collections.abc import Sequence

import numpy as np
from transformers import PreTrainedTokenizerFast

from pgax.data.chat import Chat
from pgax.data.tokenizer import encode, encode_completion
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


@dataclasses.dataclass(frozen=True, eq=False)
class DemonstrationBatch:
  """A batch of prompts with the solutions to imitate.

  Attributes:
    prompts: `N` prompts.
    tokens: `[N, T]` int32, the solutions with EOS, right-padded with 0.
    mask: `[N, T]` bool.
  """

  prompts: PromptBatch
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


def _within(ids: list[int], limit: int, what: str, text: str, option: str) -> list[int]:
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
    return _within(
      ids, self.max_prompt_tokens, "prompt", example.prompt, "max_prompt_tokens"
    )

  def __call__(self, examples: Sequence[Example]) -> PromptBatch:
    rows = [self.ids(example) for example in examples]
    return PromptBatch(tuple(examples), *pad(rows, self.max_prompt_tokens))


@dataclasses.dataclass(frozen=True)
class CollateDemonstrations:
  """Examples to a `DemonstrationBatch`.

  Attributes:
    prompts: how to collate the prompts.
    max_tokens: the width `T`; a longer solution is an error that names it.
  """

  prompts: CollatePrompts
  max_tokens: int

  def ids(self, example: Example) -> list[int]:
    """Ids of the solution, EOS included, within the limit."""
    if not example.solution:
      raise ValueError(f"problem {example.prompt!r} has no solution to learn from")
    ids = encode_completion(self.prompts.tokenizer, example.solution)
    return _within(ids, self.max_tokens, "solution", example.solution, "max_tokens")

  def __call__(self, examples: Sequence[Example]) -> DemonstrationBatch:
    rows = [self.ids(example) for example in examples]
    return DemonstrationBatch(self.prompts(examples), *pad(rows, self.max_tokens))
