"""The grain pipeline: endless shuffled epochs and a position that can be saved."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import grain
import numpy as np

from pgax.data.mixture import Mixture, with_task_name
from pgax.types import Example


def batches(
  examples: Sequence[Example],
  collate: Callable[[Sequence[Example]], Any],
  batch_size: int,
  seed: int,
  process_index: int = 0,
  process_count: int = 1,
) -> grain.DatasetIterator:
  """Iterates over batches of examples, each epoch in a new order.

  The iterator's `get_state()` is a small dictionary of numbers for a checkpoint, and
  `set_state()` resumes with the batch that would have come next. Every process gets its
  rows of each global batch, in order: neither the global batches nor the position depend on
  the number of processes. The parts of a `Mixture` have their own epochs and are drawn in
  proportion to their weights.

  Args:
    examples: random-access examples.
    collate: builds a batch from a list of examples.
    batch_size: number of examples in a global batch.
    seed: random seed of the shuffle.
    process_index: index of this process.
    process_count: number of processes; `batch_size` must be a multiple of it.

  Returns:
    An infinite iterator; each item is collated from `batch_size / process_count` examples.

  Raises:
    ValueError: if a number is out of range.
  """
  local_size = local_batch_size(batch_size, process_index, process_count)
  # An infinite dataset has no remainder to drop. Without this argument, grain counts
  # batches as a float, which is too large to be a length if batches have one example.
  parts = shuffled(examples, seed).batch(local_size, drop_remainder=True, batch_fn=collate)
  if process_count > 1:
    parts = parts[process_index::process_count]
  # One thread and no buffer: batches are small, so prefetching would cost more than it
  # saves, and the position would no longer be exact.
  options = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)
  return iter(parts.to_iter_dataset(options))


def local_batch_size(batch_size: int, process_index: int, process_count: int) -> int:
  """Returns the number of examples of a global batch that each process has.

  Args:
    batch_size: number of examples in a global batch.
    process_index: index of this process.
    process_count: number of processes.

  Returns:
    `batch_size / process_count`.

  Raises:
    ValueError: if there is no such process, or the batch cannot be divided evenly.
  """
  if not 0 <= process_index < process_count:
    raise ValueError(
      f"process_index is {process_index}; it must be in [0, {process_count - 1}], because "
      f"process_count is {process_count}"
    )
  if batch_size < 1 or batch_size % process_count:
    raise ValueError(
      f"batch_size is {batch_size}; it must be a multiple of process_count, which is "
      f"{process_count}"
    )
  return batch_size // process_count


def shuffled(examples: Sequence[Example], seed: int) -> grain.MapDataset:
  """Repeats the examples, each epoch in a new order; mixes a `Mixture` by its weights."""
  if not isinstance(examples, Mixture):
    return grain.MapDataset.source(examples).seed(seed).shuffle().repeat()
  seeds = np.random.SeedSequence(seed).generate_state(len(examples.parts)).tolist()
  parts = [
    shuffled(part, part_seed).map(functools.partial(with_task_name, name=name))
    for (name, part), part_seed in zip(examples.parts, seeds, strict=True)
  ]
  return grain.MapDataset.mix(parts, examples.weights)
