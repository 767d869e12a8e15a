"""The explicit key-value cache: one prefix for a prompt, one suffix for each completion.

Which key a query sees is decided by positions alone. A key at position `p` is visible to
a query at position `q` if and only if `p <= q`, and in a layer with a sliding window of
`W` tokens also `q - p < W`. Padding, and slots not written yet, stand at position `NEVER`,
which no real query reaches. There is no second mask to keep in step, and no assumption
about where the padding is.
"""

import flax.struct
import jax
import jax.numpy as jnp

from pgax.types import Array

NEVER = 2**30


@flax.struct.dataclass
class Segment:
  """Keys and values of `S` slots of every layer.

  Attributes:
    keys: `[layers, N, G, S, K, D]` (`K` heads of width `D`).
    values: likewise.
    positions: `[N, G, S]` int32, `NEVER` where a slot holds nothing to be seen.
  """

  keys: Array
  values: Array
  positions: Array


@flax.struct.dataclass
class Cache:
  """What the model remembers: the prompt once, and the tokens of every completion.

  Attributes:
    prefix: keys and values `[layers, N, 1, P, ...]`, read by all `G` completions; or None.
    suffix: keys and values `[layers, N, G, S, ...]`, written from slot `index` on; or None,
      and then it will be what is read next, all at once.
    index: int32 scalar, the first free slot of the suffix.
  """

  prefix: Segment | None
  suffix: Segment | None
  index: Array


def token_positions(mask: Array, start: Array | int = 0) -> Array:
  """Positions of real tokens, counted from `start`; `NEVER` for the rest.

  Args:
    mask: `[..., L]` bool, true on real tokens.
    start: `[...]` int or a scalar, the position of the first real token.

  Returns:
    `[..., L]` int32.
  """
  count = jnp.cumsum(mask, axis=-1, dtype=jnp.int32) - 1
  return jnp.where(mask, count + jnp.asarray(start, jnp.int32)[..., None], NEVER)


def empty_segment(shape: tuple[int, int, int, int, int, int], dtype: jnp.dtype) -> Segment:
  """A segment of which no slot is written.

  Args:
    shape: `(layers, N, G, S, K, D)`.
    dtype: of the keys and values.

  Returns:
    A `Segment` of zeros at position `NEVER`.
  """
  zeros = jnp.zeros(shape, dtype)
  return Segment(zeros, zeros, jnp.full(shape[1:4], NEVER, jnp.int32))


def share_prefix(prefill: Cache, group: int, slots: int) -> Cache:
  """Makes what was just read the common prefix of `group` empty completions.

  Args:
    prefill: the cache after the prompts `[N, 1, P]`.
    group: number of completions of each prompt, `G`.
    slots: number of tokens that each completion has room for, `S`; 0 if each will be read
      at once.

  Returns:
    A `Cache` with the prompt as prefix and an empty suffix `[layers, N, G, S, ...]`.
  """
  prefix = prefill.suffix
  layers, n, _, _, heads, width = prefix.keys.shape
  shape = (layers, n, group, slots, heads, width)
  suffix = empty_segment(shape, prefix.keys.dtype) if slots else None
  return Cache(prefix, suffix, jnp.int32(0))


def append(cache: Cache, new: Segment) -> Cache:
  """The cache with what was just read in the slots `[index, index + L)` of its suffix.

  All layers are written at once, after the last of them: inside a loop XLA then updates
  the cache in place, whereas a scan over layers that returned it would copy it.

  Args:
    cache: what came before.
    new: keys, values and positions of `L` tokens.

  Returns:
    A `Cache`.

  Raises:
    ValueError: if there are more tokens than slots.
  """
  length = new.positions.shape[-1]
  if cache.suffix is None:
    return cache.replace(suffix=new, index=jnp.int32(length))
  slots = cache.suffix.positions.shape[-1]
  if length > slots:
    raise ValueError(f"{length} tokens do not fit into a cache of {slots} slots")

  def write(buffer: Array, update: Array, axis: int) -> Array:
    update = update.astype(buffer.dtype)
    return jax.lax.dynamic_update_slice_in_dim(buffer, update, cache.index, axis)

  suffix = Segment(
    write(cache.suffix.keys, new.keys, axis=3),
    write(cache.suffix.values, new.values, axis=3),
    write(cache.suffix.positions, new.positions, axis=2),
  )
  return cache.replace(suffix=suffix, index=cache.index + length)
