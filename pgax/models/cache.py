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
    keys: `[layers, N, G, K, S, D]` (`K` heads of width `D`): the slots of a head stand
      together, as every step of decoding reads them.
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
    prefix: keys and values `[layers, N, 1, K, P, D]`, read by all `G` completions; or
      `[layers, N, R, K, P, D]`, of which each completion reads the one that `rows` names;
      or None.
    suffix: keys and values `[layers, N, G, K, S, D]`, written from slot `index` on; or
      None, and then it will be what is read next, all at once.
    index: int32 scalar, the slot of the suffix to be written next.
    rows: `[N, G]` int32, the prefix of each completion; None where there is one for all.
  """

  prefix: Segment | None
  suffix: Segment | None
  index: Array
  rows: Array | None = None


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
    shape: `(layers, N, G, K, S, D)`.
    dtype: of the keys and values.

  Returns:
    A `Segment` of zeros at position `NEVER`.
  """
  zeros = jnp.zeros(shape, dtype)
  _, n, group, _, slots, _ = shape
  return Segment(zeros, zeros, jnp.full((n, group, slots), NEVER, jnp.int32))


def share_prefix(prefill: Cache) -> Cache:
  """Makes what was just read the prefix of what is read next.

  Args:
    prefill: the cache after the prompts `[N, 1, P]`.

  Returns:
    A `Cache` with the prompts as prefix and no suffix.
  """
  return Cache(prefill.suffix, None, jnp.int32(0))


def with_slots(cache: Cache, lanes: int, width: int, slots: int) -> Cache:
  """Room for `lanes` times `width` completions of the prompts that are the prefix.

  Lane `i` has the `i`-th part of the `N` prompts. With as many lanes as prompts, a lane's
  completions all read its one prompt; with fewer, `rows` says which prompt each reads, and
  changing it is all that it takes to begin another.

  Args:
    cache: as `share_prefix` makes it of `N` prompts.
    lanes: divides `N`.
    width: number of completions of each lane at a time.
    slots: number of tokens that each completion has room for.

  Returns:
    A `Cache` of prefixes `[layers, lanes, N / lanes, ...]` and an empty suffix
    `[layers, lanes, width, ...]`; every completion reads its lane's first prompt.
  """

  def cut(x: Array, axis: int) -> Array:
    return x.reshape(*x.shape[:axis], lanes, -1, *x.shape[axis + 2 :])

  prefix = cache.prefix
  layers, n, _, heads, _, size = prefix.keys.shape
  suffix = empty_segment((layers, lanes, width, heads, slots, size), prefix.keys.dtype)
  rows = jnp.zeros((lanes, width), jnp.int32) if lanes < n else None
  prefix = Segment(cut(prefix.keys, 1), cut(prefix.values, 1), cut(prefix.positions, 0))
  return Cache(prefix, suffix, jnp.int32(0), rows)


def pick(memory: Array, rows: Array | None) -> Array:
  """Rows `[N, G, ...]` of a memory `[N, R, ...]` by index `[N, G]`; None takes it all."""
  return memory if rows is None else jax.vmap(lambda x, i: x[i])(memory, rows)


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
    write(cache.suffix.keys, new.keys, axis=4),
    write(cache.suffix.values, new.values, axis=4),
    write(cache.suffix.positions, new.positions, axis=2),
  )
  return cache.replace(suffix=suffix, index=cache.index + length)
