"""Blocks of queries and keys, and which of them meet."""

import dataclasses

import jax
import jax.numpy as jnp

from pgax.models.attend.parts import Part, TokenPositions
from pgax.models.cache import NEVER
from pgax.types import Array

_ROUND = 8  # a block's size is a multiple of it, for the vector units


@dataclasses.dataclass(frozen=True)
class Blocks:
  """An axis of `length` entries, divided into blocks of at most `limit`.

  Attributes:
    length: number of entries.
    limit: largest size of a block.
  """

  length: int
  limit: int

  @property
  def count(self) -> int:
    """Number of blocks."""
    return -(-self.length // self.limit)

  @property
  def size(self) -> int:
    """Size of every block; the last one is padded."""
    unit = 1 if self.count == 1 else _ROUND
    return -(-self.length // (self.count * unit)) * unit

  def pad(self, x: Array, axis: int, value: int = 0) -> Array:
    """Pads an array to whole blocks."""
    width = [(0, 0)] * x.ndim
    width[axis] = (0, self.count * self.size - self.length)
    return jnp.pad(x, width, constant_values=value)

  def take(self, x: Array, i: Array, axis: int) -> Array:
    """Takes the block `i` of a padded array."""
    return jax.lax.dynamic_slice_in_dim(x, i * self.size, self.size, axis)

  def add(self, x: Array, update: Array, i: Array, axis: int) -> Array:
    """Adds to the block `i` of a padded array."""
    update = self.take(x, i, axis) + update
    return jax.lax.dynamic_update_slice_in_dim(x, update, i * self.size, axis)

  def join(self, blocks: Array, axis: int) -> Array:
    """Joins `[count, ...]` blocks along an axis, and cuts the padding."""
    joined = jnp.moveaxis(blocks, 0, axis)
    shape = (*joined.shape[:axis], -1, *joined.shape[axis + 2 :])
    return jax.lax.slice_in_dim(joined.reshape(shape), 0, self.length, axis=axis)

  def pad_tokens(self, tokens: TokenPositions) -> TokenPositions:
    """Pads positions `[N, G, length]`; padding is at `NEVER`, in segment 0."""
    segments = tokens.segments
    return TokenPositions(
      self.pad(tokens.positions, 2, NEVER),
      None if segments is None else self.pad(segments, 2),
    )

  def take_tokens(self, tokens: TokenPositions, i: Array) -> TokenPositions:
    """Takes the block `i` of padded tokens."""
    return jax.tree.map(lambda x: self.take(x, i, 2), tokens)


class Keys:
  """A part of the keys, in blocks.

  Attributes:
    keys: `[N, G, K, S, D]`, padded to whole blocks.
    values: `[N, G, K, S, D]`, padded.
    tokens: positions `[N, G, S]`, padded.
    shared: whether the group shares them; then `G` is 1.
    blocks: how slots are divided.
  """

  def __init__(self, part: Part, segments: Array | None, limit: int):
    self.blocks = Blocks(part.keys.shape[3], limit)
    self.keys, self.values = (self.blocks.pad(x, 3) for x in part[:2])
    self.tokens = self.blocks.pad_tokens(TokenPositions(part.positions, segments))
    self.shared = part.keys.shape[1] == 1

  def block(self, j: Array) -> tuple[Array, Array, TokenPositions]:
    """Takes the keys, values and positions of the block `j`."""
    keys, values = (self.blocks.take(x, j, 3) for x in (self.keys, self.values))
    return keys, values, self.blocks.take_tokens(self.tokens, j)

  def add(self, sums: Array, update: Array, j: Array) -> Array:
    """Adds to the block `j` of sums over queries."""
    return self.blocks.add(sums, update, j, 3)

  def cut(self, sums: Array) -> Array:
    """Cuts the padding."""
    return sums[:, :, :, : self.blocks.length]


def fold(x: Array, shared: bool) -> Array:
  """Folds the rows that are multiplied by the same keys onto one axis.

  Args:
    x: `[N, G, K, R, L, ...]`.
    shared: whether the group shares its keys.

  Returns:
    `[N, G, K, R * L, ...]`, or `[N, 1, K, G * R * L, ...]` if the group shares its keys.
  """
  n, group, heads, repeats, length, *rest = x.shape
  if not shared:
    return x.reshape(n, group, heads, repeats * length, *rest)
  return x.swapaxes(1, 2).reshape(n, 1, heads, group * repeats * length, *rest)


def unfold(x: Array, shape: tuple[int, ...]) -> Array:
  """Undoes `fold`, to `shape`."""
  n, group, heads, *rest = shape
  if x.shape[1] == group:
    return x.reshape(shape)
  return x.reshape(n, heads, group, *rest).swapaxes(1, 2)


def fold_tokens(tokens: TokenPositions, repeats: int, shared: bool) -> TokenPositions:
  """Gives every folded row its position, `[N, G, R * L]` or `[N, 1, G * R * L]`."""

  def fold_one(x: Array) -> Array:
    n, group, length = x.shape
    rows = jnp.broadcast_to(x[:, :, None], (n, group, repeats, length))
    return rows.reshape(n, 1 if shared else group, -1)

  return jax.tree.map(fold_one, tokens)


def reaches(
  rows: Blocks,
  tokens: TokenPositions,
  slots: Blocks,
  key_tokens: TokenPositions,
  window: Array | None,
) -> Array:
  """Returns whether any query of each block may attend to any key of each block.

  Args:
    rows: blocks of queries.
    tokens: positions of the queries, padded.
    slots: blocks of keys.
    key_tokens: positions of the keys, padded.
    window: int32 scalar; None for no window.

  Returns:
    `[blocks of queries, blocks of keys]` bool, true where something may be visible.
  """

  def bounds(x: Array, blocks: Blocks) -> tuple[Array, Array]:
    """Least and greatest entry of each block, without padding."""
    x = x.reshape(*x.shape[:2], blocks.count, blocks.size)
    return jnp.min(x, axis=-1), jnp.max(jnp.where(x < NEVER, x, -1), axis=-1)

  first, last = (x[..., None] for x in bounds(tokens.positions, rows))
  first_key, last_key = (x[..., None, :] for x in bounds(key_tokens.positions, slots))
  meet = first_key <= last
  if window is not None:
    meet &= first - last_key < window
  if tokens.segments is not None:
    first, last = (x[..., None] for x in bounds(tokens.segments, rows))
    first_key, last_key = (x[..., None, :] for x in bounds(key_tokens.segments, slots))
    meet &= (first_key <= last) & (first <= last_key)
  return jnp.any(meet, axis=(0, 1))
