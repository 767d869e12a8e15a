"""Collates worked solutions into rows of tokens, one per row or several packed."""

import dataclasses
from collections.abc import Mapping, Sequence

import grain
import numpy as np
from grain.experimental import FirstFitPackIterDataset

from pgax.data.pipeline import local_batch_size, shuffled
from pgax.data.prompts import CollatePrompts, check_length, pad
from pgax.data.tokenizer import encode_completion
from pgax.types import DemonstrationRows, Example


@dataclasses.dataclass(frozen=True)
class CollateDemonstrations:
  """Collates examples into `DemonstrationRows`, one example per row.

  Attributes:
    prompts: collates the prompts.
    max_completion_tokens: maximum number of tokens in a solution, EOS included; a longer
      solution raises ValueError.
  """

  prompts: CollatePrompts
  max_completion_tokens: int

  @property
  def width(self) -> int:
    """Maximum number of tokens of a prompt and its solution."""
    return self.prompts.max_prompt_tokens + self.max_completion_tokens

  def ids(self, example: Example) -> list[int]:
    """Returns the ids of the solution, EOS included; raises ValueError over the limit."""
    if not example.solution:
      raise ValueError(f"problem {example.prompt!r} has no solution to learn from")
    ids = encode_completion(self.prompts.tokenizer, example.solution)
    return check_length(
      ids, self.max_completion_tokens, "solution", example.solution, "max_completion_tokens"
    )

  def texts(self, example: Example) -> dict[str, np.ndarray]:
    """Returns `tokens` of prompt and solution, and which of them are `learned`."""
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
  """Packs as many demonstrations as fit into the rows of each batch.

  A demonstration goes into the first row of its batch that has room for it. The batch ends
  before the first demonstration that fits into no row (first fit, by `grain`). Epochs,
  order and the position that can be saved are those of `batches`. Each process fills its
  own rows with its share of the examples. Unlike with `batches`, a global batch therefore
  depends on the number of processes.

  Args:
    examples: random-access examples with solutions.
    collate: tokenizes the examples.
    rows: number of rows in a global batch, `R`.
    row_tokens: width of a row, `L`, in tokens; at least `collate.width`, so that every
      demonstration within the limits fits.
    seed: random seed of the shuffle.
    process_index: index of this process.
    process_count: number of processes; `rows` must be a multiple of it.

  Returns:
    An infinite iterator over `DemonstrationRows`.

  Raises:
    ValueError: if a number is out of range.
  """
  if row_tokens < collate.width:
    raise ValueError(
      f"row_tokens is {row_tokens}; a prompt of {collate.prompts.max_prompt_tokens} tokens "
      f"and a solution of {collate.max_completion_tokens} need {collate.width}"
    )
  local_rows = local_batch_size(rows, process_index, process_count)
  texts = shuffled(examples, seed)[process_index::process_count].map(collate.texts)
  packed = FirstFitPackIterDataset(
    texts.to_iter_dataset(grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)),
    length_struct={"tokens": row_tokens, "learned": row_tokens},
    num_packing_bins=local_rows,
    shuffle_bins=False,
  )
  return iter(packed.batch(local_rows, batch_fn=_stack))


def _stack(rows: Sequence[Mapping[str, np.ndarray]]) -> DemonstrationRows:
  names = ("tokens", "learned", "tokens_positions", "tokens_segment_ids")
  return DemonstrationRows(*(np.stack([row[name] for row in rows]) for name in names))
