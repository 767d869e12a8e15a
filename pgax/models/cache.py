"""The explicit key-value cache: one prefix per prompt, one suffix per completion.

Positions alone decide which keys a query attends to. A query at position `q` attends to a
key at position `p` if and only if `p <= q`, and in a layer with a sliding window of `W`
tokens also `q - p < W`. Padding and slots that are not written yet have position `NEVER`,
which no real query reaches. There is no second mask to keep consistent, and padding may be
anywhere.
"""

import flax.struct
import jax
import jax.numpy as jnp

from pgax.types import Array

NEVER = 2**30


@flax.struct.dataclass
class KeyValues:
  """Keys and values of `S` slots in every layer.

  Attributes:
    keys: `[layers, N, G, K, S, D]` for `K` heads of width `D`, or a tuple with an array of
      each layer. The slots of a head are contiguous, which is how every step of decoding
      reads them.
    values: `[layers, N, G, K, S, D]`, or a tuple.
    positions: `[N, G, S]` int32, `NEVER` for slots that nothing attends to.
  """

  keys: Array | tuple[Array, ...]
  values: Array | tuple[Array, ...]
  positions: Array


@flax.struct.dataclass
class Cache:
  """Keys and values of everything read so far: prompts once, and every completion.

  Attributes:
    prefix: keys and values `[layers, N, 1, K, P, D]` that all `G` completions attend to; or
      `[layers, N, R, K, P, D]`, of which each completion attends to the one that
      `prefix_rows` names; or None.
    suffix: keys and values `[layers, N, G, K, S, D]`, written from slot `index` on. None
      means that the tokens read next become the suffix, all at once.
    index: int32 scalar, the next slot of the suffix to write.
    prefix_rows: `[N, G]` int32, index of each completion's prefix; None if all completions
      share one.
  """

  prefix: KeyValues | None
  suffix: KeyValues | None
  index: Array
  prefix_rows: Array | None = None


def token_positions(mask: Array, start: Array | int = 0) -> Array:
  """Counts real tokens from `start`; padding gets position `NEVER`.

  Args:
    mask: `[..., L]` bool, true on real tokens.
    start: `[...]` int or a scalar, the position of the first real token.

  Returns:
    `[..., L]` int32.
  """
  count = jnp.cumsum(mask, axis=-1, dtype=jnp.int32) - 1
  return jnp.where(mask, count + jnp.asarray(start, jnp.int32)[..., None], NEVER)


def empty_key_values(
  shape: tuple[int, int, int, int, int, int], dtype: jnp.dtype
) -> KeyValues:
  """Allocates slots, none of which is written.

  Args:
    shape: `(layers, N, G, K, S, D)`.
    dtype: dtype of keys and values.

  Returns:
    `KeyValues` of zeros at position `NEVER`.
  """
  zeros = jnp.zeros(shape, dtype)
  _, n, group, _, slots, _ = shape
  return KeyValues(zeros, zeros, jnp.full((n, group, slots), NEVER, jnp.int32))


def share_prefix(prefill: Cache) -> Cache:
  """Turns the tokens just read into the prefix of the tokens read next.

  Args:
    prefill: cache after reading the prompts `[N, 1, P]`.

  Returns:
    A `Cache` with the prompts as prefix and no suffix.
  """
  return Cache(prefill.suffix, None, jnp.int32(0))


def with_slots(cache: Cache, lanes: int, width: int, slots: int) -> Cache:
  """Allocates suffixes for `lanes * width` completions of the prompts in the prefix.

  The `N` prompts are divided into lanes, in order. With as many lanes as prompts, all
  completions of a lane attend to its one prompt. With fewer lanes, `prefix_rows` selects
  the prompt of each completion; changing it is all it takes to begin a completion of
  another prompt.

  Args:
    cache: cache of `N` prompts, from `share_prefix`.
    lanes: number of lanes; must divide `N`.
    width: number of completions per lane at a time.
    slots: number of tokens that each completion has room for.

  Returns:
    A `Cache` with prefixes `[layers, lanes, N / lanes, ...]` and an empty suffix
    `[layers, lanes, width, ...]`; every completion attends to its lane's first prompt.
  """

  def into_lanes(x: Array, axis: int) -> Array:
    return x.reshape(*x.shape[:axis], lanes, -1, *x.shape[axis + 2 :])

  prefix = cache.prefix
  layers, n, _, heads, _, size = prefix.keys.shape
  suffix = empty_key_values((layers, lanes, width, heads, slots, size), prefix.keys.dtype)
  rows = jnp.zeros((lanes, width), jnp.int32) if lanes < n else None
  prefix = KeyValues(
    into_lanes(prefix.keys, 1),
    into_lanes(prefix.values, 1),
    into_lanes(prefix.positions, 0),
  )
  return Cache(prefix, suffix, jnp.int32(0), rows)


def unroll(cache: Cache) -> Cache:
  """Splits keys and values by layer, so that each array is updated in place.

  Args:
    cache: cache with stacked layers, and a suffix.

  Returns:
    The `Cache` with tuples of arrays; those of the suffix are `narrow`.
  """
  prefix, suffix = cache.prefix, cache.suffix
  if prefix is not None:
    prefix = prefix.replace(keys=tuple(prefix.keys), values=tuple(prefix.values))
  return cache.replace(
    prefix=prefix,
    suffix=suffix.replace(
      keys=tuple(narrow(x) for x in suffix.keys),
      values=tuple(narrow(x) for x in suffix.values),
    ),
  )


def narrow(slots: Array) -> Array:
  """Removes axes of size 1 among the first three of `[N, G, K, S, D]`.

  XLA multiplies matrices without such axes, and moves their removal before the write of a
  token. If a loop carried them, it would write to both forms, and copy the slots.
  """
  axes = tuple(i for i, size in enumerate(slots.shape[:3]) if size == 1)
  return slots.squeeze(axes)


def take_rows(memory: Array, rows: Array | None) -> Array:
  """Takes rows `[N, G, ...]` of `[N, R, ...]` by index `[N, G]`; None takes all."""
  return memory if rows is None else jax.vmap(lambda x, i: x[i])(memory, rows)


def write(buffer: Array, update: Array, index: Array, axis: int = -2) -> Array:
  """Writes keys, values or positions of new tokens into the slots from `index` on."""
  if buffer.ndim < update.ndim:
    update = narrow(update)
  update = update.astype(buffer.dtype)
  return jax.lax.dynamic_update_slice_in_dim(buffer, update, index, axis)


def append(cache: Cache, new: KeyValues) -> Cache:
  """Writes the tokens just read into the slots `[index, index + L)` of the suffix.

  All layers are written at once, after the last of them: inside a loop XLA then updates
  the cache in place, whereas a scan over layers that returned it would copy it.

  Args:
    cache: cache before these tokens.
    new: keys, values and positions of `L` tokens.

  Returns:
    The `Cache` with these tokens.

  Raises:
    ValueError: if there are more tokens than slots.
  """
  length = new.positions.shape[-1]
  if cache.suffix is None:
    return cache.replace(suffix=new, index=jnp.int32(length))
  slots = cache.suffix.positions.shape[-1]
  if length > slots:
    raise ValueError(f"{length} tokens do not fit into a cache of {slots} slots")

  suffix = KeyValues(
    write(cache.suffix.keys, new.keys, cache.index),
    write(cache.suffix.values, new.values, cache.index),
    write(cache.suffix.positions, new.positions, cache.index, axis=-1),
  )
  return cache.replace(suffix=suffix, index=cache.index + length)
