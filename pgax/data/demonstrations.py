"""Worked solutions as rows of tokens: one in a row, or several packed into it."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import grain
import numpy as np
from grain.experimental import FirstFitPackIterDataset

from pgax.data.pipeline import process_part, shuffled
from pgax.data.prompts import CollatePrompts, pad, within
from pgax.data.tokenizer import encode_completion
from pgax.types import Array, Example


class DemonstrationRows(NamedTuple):
  """Prompts, each with the solution to imitate, in rows.

  Attributes:
    tokens: `[R, L]` int32, a prompt and its solution with EOS one behind the other, then
      the next or padding.
    learned: `[R, L]` bool, the tokens of solutions: those whose likelihood is raised.
    positions: `[R, L]` int32, of each token in its own text.
    segments: `[R, L]` int32, the number of that text in its row from 1 on; 0 for padding.
  """

  tokens: Array
  learned: Array
  positions: Array
  segments: Array


@dataclasses.dataclass(frozen=True)
class CollateDemonstrations:
  """Examples to `DemonstrationRows`, one in a row.

  Attributes:
    prompts: how to collate the prompts.
    max_tokens: the limit of a solution; a longer one is an error that names it.
  """

  prompts: CollatePrompts
  max_tokens: int

  @property
  def width(self) -> int:
    """Room for any one demonstration, in tokens."""
    return self.prompts.max_prompt_tokens + self.max_tokens

  def ids(self, example: Example) -> list[int]:
    """Ids of the solution, EOS included, within the limit."""
    if not example.solution:
      raise ValueError(f"problem {example.prompt!r} has no solution to learn from")
    ids = encode_completion(self.prompts.tokenizer, example.solution)
    return within(ids, self.max_tokens, "solution", example.solution, "max_tokens")

  def texts(self, example: Example) -> dict[str, np.ndarray]:
    """`tokens` of prompt and solution, and which of them are `learned`."""
    prompt, solution = self.prompts.ids(example), self.ids(example)
    return {
      "tokens": np.asarray(prompt + solution, np.int32),
      "learned": np.arange(len(prompt) + len(solution)) >= len(prompt),
    }

  def __call__(self, examples: Sequence[Example]) -> DemonstrationRows:
    texts = [self.texts(example) for example in examples]
    tokens, real = pad([text["tokens"] for text in texts], self.width)
    learned, _ = pad([text["learned"] for text in texts], self.width)
    positions = np.where(real, np.arange(self.width, dtype=np.int32), 0)
    return DemonstrationRows(tokens, learned.astype(bool), positions, real.astype(np.int32))


def packed_batches(
  examples: Sequence[Example],
  collate: CollateDemonstrations,
  rows: int,
  row_tokens: int,
  seed: int,
  process_index: int = 0,
  process_count: int = 1,
) -> grain.DatasetIterator:
  """Batches of rows that are filled with as many demonstrations as fit.

  A demonstration goes into the first row of its batch that has room for it, and the batch
  ends with the first one that no row has room for (first fit, by `grain`). Epochs and order
  are those of `batches`, and so is the position that can be saved. Each process fills rows
  of its own with its part of the examples: unlike those of `batches`, what stands in a
  global batch depends on the number of processes.

  Args:
    examples: random-access examples with solutions.
    collate: their tokens.
    rows: number of rows in a global batch, `R`.
    row_tokens: width of a row, `L`; at least `collate.width`, so that every demonstration
      within its limits fits.
    seed: of the shuffle.
    process_index: which process this is.
    process_count: number of processes; `rows` must be a multiple of it.

  Returns:
    An iterator without end of `DemonstrationRows`.

  Raises:
    ValueError: if a number is out of its range.
  """
  if row_tokens < collate.width:
    raise ValueError(
      f"row_tokens is {row_tokens}; a prompt of {collate.prompts.max_prompt_tokens} tokens "
      f"and a solution of {collate.max_tokens} need {collate.width}"
    )
  mine = process_part(rows, process_index, process_count)
  texts = shuffled(examples, seed)[process_index::process_count].map(collate.texts)
  packed = FirstFitPackIterDataset(
    texts.to_iter_dataset(grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)),
    length_struct={"tokens": row_tokens, "learned": row_tokens},
    num_packing_bins=mine,
    shuffle_bins=False,
  )
  return iter(packed.batch(mine, batch_fn=_stacked))


def _stacked(rows: Sequence[Mapping[str, np.ndarray]]) -> DemonstrationRows:
  names = ("tokens", "learned", "tokens_positions", "tokens_segment_ids")
  return DemonstrationRows(*(np.stack([row[name] for row in rows]) for name in names))
