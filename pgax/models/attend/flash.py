"""Attention on TPUs, whose scores never leave the chip (arXiv 2205.14135).

The kernels take positions, segments, windows and softcaps as the other backends do. Splash
attention, the kernel that comes with JAX, needs masks that are known when the program is
traced; here a window is a number of the layer that a scan runs over, and where padding is
and where a completion begins is data. It can't take the log-sums of other parts either.
"""

import dataclasses

import jax
import jax.numpy as jnp

from pgax.models.attend import flash_kernels as kernels
from pgax.models.attend.blocks import Blocks, fold, fold_places, reaches, unfold
from pgax.models.attend.parts import Part, Places, Scores
from pgax.types import Array

_BLOCK = 512  # most rows, and most keys, in a block
_LANES = 128


@dataclasses.dataclass(frozen=True)
class Flash:
  """Kernels for one part of the keys; see `merged.Kernel`.

  Attributes:
    block: largest number of rows, and of keys, in a block.
    unit: number that a block's size is a multiple of; TPUs need 128.
    interpret: whether to interpret the kernels, slowly and on any device.
  """

  block: int = _BLOCK
  unit: int = _LANES
  interpret: bool = False

  def forward(
    self,
    queries: Array,
    part: Part,
    where: Places,
    window: Array | None,
    scores: Scores,
    own: bool,
  ) -> tuple[Array, Array]:
    """Attends to a part."""
    del own
    call = _prepare(self, queries, part, where, window, scores)
    mixed, log_sum = kernels.forward(*call.settings, call.fold(queries), *call.keys)
    return call.unfold(mixed, queries.shape), call.unfold(
      log_sum[:, :, 0], queries.shape[:-1]
    )

  def backward(
    self,
    queries: Array,
    part: Part,
    where: Places,
    window: Array | None,
    scores: Scores,
    own: bool,
    merged: tuple[Array, Array],
    gradient: Array,
  ) -> tuple[Array, Array, Array]:
    """Computes a part's share of the gradient."""
    del own
    call = _prepare(self, queries, part, where, window, scores)
    mixed, log_sum = merged
    inside = jnp.sum(gradient * mixed, axis=-1)
    matrices = [call.fold(x) for x in (queries, gradient.astype(queries.dtype))]
    vectors = [call.fold(x)[:, :, None] for x in (log_sum, inside)]
    rows = (*matrices, *vectors)
    of_queries = kernels.of_queries(*call.settings, rows, *call.keys)
    of_keys = kernels.of_keys(*call.settings, rows, *call.keys)
    cut = [x[:, :, : part.keys.shape[3]].reshape(part.keys.shape) for x in of_keys]
    return call.unfold(of_queries, queries.shape), *cut


@dataclasses.dataclass(frozen=True)
class _Call:
  """Arguments of the kernels.

  Attributes:
    settings: static settings, window, blocks that meet, and places.
    keys: keys and values, padded.
    rows: how rows are divided.
    shared: whether the group shares its keys.
  """

  settings: tuple
  keys: tuple[Array, Array]
  rows: Blocks
  shared: bool

  def fold(self, x: Array) -> Array:
    """Folds `[N, G, K, R, L, ...]` to padded rows `[B, K, M, ...]`."""
    x = self.rows.pad(fold(x, self.shared), 3)
    return x.reshape(-1, *x.shape[2:])

  def unfold(self, x: Array, shape: tuple[int, ...]) -> Array:
    """Undoes `fold`, to `shape`."""
    x = x[:, :, : self.rows.length]
    group = 1 if self.shared else shape[1]
    return unfold(x.reshape(shape[0], group, *x.shape[1:]), shape)


def _prepare(
  flash: Flash,
  queries: Array,
  part: Part,
  where: Places,
  window: Array | None,
  scores: Scores,
) -> _Call:
  """Folds and pads what the three kernels share."""
  shared, repeats, length = part.keys.shape[1] == 1, queries.shape[3], queries.shape[4]
  count = repeats * length * (queries.shape[1] if shared else 1)
  rows = Blocks(count, flash.block, flash.unit)
  slots = Blocks(part.keys.shape[3], flash.block, flash.unit)
  keys = tuple(slots.pad(x.reshape(-1, *x.shape[2:]), 2) for x in part[:2])
  row_places = rows.pad_places(fold_places(where, repeats, shared))
  key_places = slots.pad_places(Places(part.positions, where.segments))
  reached = reaches(rows, row_places, slots, key_places, window)
  shape = kernels.Shape(rows.size, slots.size, scores, window is not None, flash.interpret)
  window = jnp.int32(0) if window is None else window
  places = _stack(row_places), _stack(key_places)
  return _Call((shape, window, reached, places), keys, rows, shared)


def _stack(places: Places) -> Array:
  """Stacks positions and segments, to `[B, 1, M]` or `[B, 2, M]`."""
  stacked = jnp.stack(jax.tree.leaves(places), axis=2)
  return stacked.reshape(-1, *stacked.shape[2:])
