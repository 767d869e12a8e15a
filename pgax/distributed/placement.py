"""Copies rows of batches from the host to the devices of all processes, and back.

A batch is sharded over its rows. A process reads and writes the rows on its own devices;
rows that are on devices of several processes, because the mesh's axis `model` spans them,
are divided between these.
"""

import functools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec, Sharding

from pgax.types import Array, PyTree


def put(tree: PyTree, sharding: Sharding) -> PyTree:
  """Puts host arrays on the devices; each process copies the rows on its own devices.

  Args:
    tree: pytree of NumPy arrays of global shapes. A process needs right values only in the
      rows on its own devices.
    sharding: sharding of every array.

  Returns:
    The pytree of global arrays.
  """
  if jax.process_count() == 1:
    return jax.device_put(tree, sharding)

  def place(x: np.ndarray) -> Array:
    x = np.asarray(x)
    return jax.make_array_from_callback(x.shape, sharding, lambda index: x[index])

  return jax.tree.map(place, tree)


def held_rows(sharding: Sharding, count: int) -> np.ndarray:
  """Returns the indices of the rows on this process's devices, in increasing order.

  Args:
    sharding: sharding of axis 0.
    count: number of rows.

  Returns:
    `[n]` indices; all of them with one process.
  """
  if jax.process_count() == 1:
    return np.arange(count)
  blocks = sharding.addressable_devices_indices_map((count,)).values()
  return np.unique(np.concatenate([np.arange(count)[rows] for (rows,) in blocks]))


def owned_rows(sharding: Sharding, count: int) -> np.ndarray:
  """Returns the indices of the rows that this process works on, in increasing order.

  Every row belongs to one of the processes that hold it.

  Args:
    sharding: sharding of axis 0.
    count: number of rows.

  Returns:
    `[n]` indices; all of them with one process.
  """
  if jax.process_count() == 1:
    return np.arange(count)
  holders: dict[tuple[int, int], set[int]] = {}
  for device, (rows,) in sharding.devices_indices_map((count,)).items():
    start, stop, _ = rows.indices(count)
    holders.setdefault((start, stop), set()).add(device.process_index)
  mine = [
    np.array_split(np.arange(start, stop), len(processes))[
      sorted(processes).index(jax.process_index())
    ]
    for (start, stop), processes in sorted(holders.items())
    if jax.process_index() in processes
  ]
  return np.concatenate([np.arange(0), *mine])


def fetch_rows(tree: PyTree, rows: np.ndarray) -> PyTree:
  """Copies rows to the host that are on this process's devices.

  Args:
    tree: pytree of arrays sharded over their axis 0 alone.
    rows: indices of the rows, in increasing order; see `owned_rows`.

  Returns:
    The pytree of NumPy arrays, `[len(rows), ...]`.
  """
  if jax.process_count() == 1:
    fetched = jax.device_get(tree)
    return jax.tree.map(lambda x: x if len(x) == len(rows) else x[rows], fetched)

  def fetch_array(x: Array) -> np.ndarray:
    if not isinstance(x, jax.Array):
      return np.asarray(x)[rows]
    blocks = {
      shard.index[0].indices(len(x))[:2]: shard.data for shard in x.addressable_shards
    }
    blocks = dict(sorted(blocks.items()))
    held = np.concatenate([np.arange(*block) for block in blocks])
    values = np.concatenate(jax.device_get(list(blocks.values())))
    return values[np.searchsorted(held, rows)]

  return jax.tree.map(fetch_array, tree)


def fetch(tree: PyTree) -> PyTree:
  """Copies whole arrays to the host of every process; they should be small.

  Args:
    tree: pytree of arrays. Arrays of one process have to be equal in all of them.

  Returns:
    The pytree of NumPy arrays.
  """
  if jax.process_count() == 1:
    return jax.device_get(tree)

  def fetch_array(x: Array) -> np.ndarray:
    if isinstance(x, jax.Array) and not (x.is_fully_addressable or x.is_fully_replicated):
      x = _copied(x)
    return np.asarray(x)

  return jax.tree.map(fetch_array, tree)


def fetch_first(tree: PyTree, count: int) -> PyTree:
  """Copies the first rows to the host of every process; they should be few.

  Args:
    tree: pytree of arrays; see `fetch`.
    count: number of rows.

  Returns:
    The pytree of NumPy arrays `[count, ...]`, or shorter ones if there are fewer rows.
  """
  return fetch(jax.tree.map(lambda x: _first(x, count), tree))


def _first(x: Array, count: int) -> Array:
  if isinstance(x, jax.Array) and not x.is_fully_addressable:
    return _copied(x, count)
  return x[:count]


def _copied(x: Array, count: int | None = None) -> Array:
  """Copies an array, or its first rows, to all devices."""
  count = None if x.ndim == 0 else count
  return _replicate(NamedSharding(x.sharding.mesh, PartitionSpec()), count)(x)


@functools.cache
def _replicate(sharding: Sharding, count: int | None) -> Callable:
  return jax.jit(lambda x: x if count is None else x[:count], out_shardings=sharding)


def take_rows(trees: Sequence[PyTree], rows: np.ndarray, sharding: Sharding) -> PyTree:
  """Selects rows of several batches, on the devices.

  Args:
    trees: pytrees of arrays `[n_i, ...]` with one structure.
    rows: `[m]` indices into the rows of all batches, one after the other.
    sharding: sharding of the rows.

  Returns:
    The pytree of arrays `[m, ...]`.
  """
  return _take(sharding)(tuple(trees), np.asarray(rows, np.int32))


@functools.cache
def _take(sharding: Sharding) -> Callable:
  def take(trees: tuple[PyTree, ...], rows: Array) -> PyTree:
    return jax.tree.map(lambda *arrays: jnp.concatenate(arrays)[rows], *trees)

  return jax.jit(take, out_shardings=sharding)
