"""Splitting a batch into microbatches, and joining them again."""

import jax

from pgax.types import Array, PyTree


def split(tree: PyTree, count: int) -> PyTree:
  """Splits axis 0 of every array: `[N, ...]` to `[count, N / count, ...]`.

  Microbatch `i` holds every `count`-th row starting at `i`. If the rows are sharded in
  blocks, every microbatch has rows on every device, and no data moves.

  Args:
    tree: pytree of arrays; `count` must divide their axis 0.
    count: number of microbatches.

  Returns:
    The pytree with a new leading axis.
  """

  def strided(x: Array) -> Array:
    return x.reshape(x.shape[0] // count, count, *x.shape[1:]).swapaxes(0, 1)

  return jax.tree.map(strided, tree)


def join(tree: PyTree) -> PyTree:
  """Inverts `split`."""
  return jax.tree.map(lambda x: x.swapaxes(0, 1).reshape(-1, *x.shape[2:]), tree)
