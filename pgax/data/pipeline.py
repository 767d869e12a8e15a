"""The grain pipeline: shuffled epochs without end, and a position that can be saved."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import grain
import numpy as np

from pgax.data.mixture import Mixture, named
from pgax.types import Example


def batches(
  examples: Sequence[Example],
  collate: Callable[[Sequence[Example]], Any],
  batch_size: int,
  seed: int,
  process_index: int = 0,
  process_count: int = 1,
) -> grain.DatasetIterator:
  """Batches of examples, each epoch in a new order.

  The iterator's `get_state()` is a small dict of numbers that goes into a checkpoint, and
  `set_state()` goes on with the batch that would have come next. Every process gets its
  rows of each global batch, in their order: neither the global batches nor the position
  depend on the number of processes. The parts of a `Mixture` have epochs of their own, and
  are drawn in proportion to their weights.

  Args:
    examples: random-access examples.
    collate: makes a batch of a list of examples.
    batch_size: number of examples in a global batch.
    seed: of the shuffle.
    process_index: which process this is.
    process_count: number of processes; `batch_size` must be a multiple of it.

  Returns:
    An iterator without end; each item is collated from `batch_size / process_count`
    examples.

  Raises:
    ValueError: if a number is out of its range.
  """
  mine = process_part(batch_size, process_index, process_count)
  # There is no remainder, as there is no end; without it grain counts batches as a float,
  # which for batches of one is too large to be a length.
  parts = shuffled(examples, seed).batch(mine, drop_remainder=True, batch_fn=collate)
  if process_count > 1:
    parts = parts[process_index::process_count]
  # One thread and no buffer: batches are small, and a reader that runs ahead would cost
  # more than it saves and blur the position.
  options = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)
  return iter(parts.to_iter_dataset(options))


def process_part(batch_size: int, process_index: int, process_count: int) -> int:
  """How much of a global batch is one process's.

  Raises:
    ValueError: if there is no such process, or the batch can't be dealt out evenly.
  """
  if not 0 <= process_index < process_count:
    raise ValueError(
      f"process_index is {process_index}; it must be in [0, {process_count - 1}], of "
      f"process_count {process_count}"
    )
  if batch_size < 1 or batch_size % process_count:
    raise ValueError(
      f"batch_size is {batch_size}; it must be a multiple of process_count, which is "
      f"{process_count}"
    )
  return batch_size // process_count


def shuffled(examples: Sequence[Example], seed: int) -> grain.MapDataset:
  """The examples over and over, each epoch in a new order; a `Mixture` by its weights."""
  if not isinstance(examples, Mixture):
    return grain.MapDataset.source(examples).seed(seed).shuffle().repeat()
  seeds = np.random.SeedSequence(seed).generate_state(len(examples.parts)).tolist()
  parts = [
    shuffled(part, part_seed).map(functools.partial(named, name=name))
    for (name, part), part_seed in zip(examples.parts, seeds, strict=True)
  ]
  return grain.MapDataset.mix(parts, examples.weights)
