"""The grain pipeline: shuffled epochs without end, and a position that can be saved."""

from collections.abc import Callable, Sequence
from typing import Any

import grain

from pgax.types import Example


def batches(
  examples: Sequence[Example],
  collate: Callable[[Sequence[Example]], Any],
  batch_size: int,
  seed: int,
) -> grain.DatasetIterator:
  """Batches of examples, each epoch in a new order.

  The iterator's `get_state()` is a small dict of numbers that goes into a checkpoint, and
  `set_state()` goes on with the batch that would have come next.

  Args:
    examples: random-access examples.
    collate: makes a batch of a list of examples.
    batch_size: number of examples in a batch.
    seed: of the shuffle.

  Returns:
    An iterator without end.
  """
  dataset = grain.MapDataset.source(examples).seed(seed).shuffle().repeat()
  # One thread and no buffer: batches are small, and a reader that runs ahead would cost
  # more than it saves and blur the position.
  options = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)
  batched = dataset.to_iter_dataset(options).batch(batch_size, batch_fn=collate)
  return iter(batched)
