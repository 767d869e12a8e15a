"""The explicit key-value cache: one prefix for a prompt, one suffix for each completion.

Which key a query sees is decided by positions alone. A key at position `p` is visible to
a query at position `q` if and only if `p <= q`. Padding, and slots not written yet, stand
at position `NEVER`, which no real query reaches. There is no second mask to keep in step,
and no assumption about where the padding is.
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
    keys: a `[N, G, S, K, D]` array for each layer (`K` heads of width `D`).
    values: likewise.
    positions: `[N, G, S]` int32, `NEVER` where a slot holds nothing to be seen.
  """

  keys: tuple[Array, ...]
  values: tuple[Array, ...]
  positions: Array


@flax.struct.dataclass
class Cache:
  """What the model remembers: the prompt once, and the tokens of every completion.

  Attributes:
    prefix: keys and values `[N, 1, P, ...]`, read by all `G` completions; or None.
    suffix: keys and values `[N, G, S, ...]`, written from slot `index` on.
    index: int32 scalar, the first free slot of the suffix.
  """

  prefix: Segment | None
  suffix: Segment
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


def empty_segment(
  shape: tuple[int, int, int, int, int], num_layers: int, dtype: jnp.dtype
) -> Segment:
  """A segment of which no slot is written.

  Args:
    shape: `(N, G, S, K, D)`.
    num_layers: number of layers.
    dtype: of the keys and values.

  Returns:
    A `Segment` of zeros at position `NEVER`.
  """
  zeros = tuple(jnp.zeros(shape, dtype) for _ in range(num_layers))
  return Segment(zeros, zeros, jnp.full(shape[:3], NEVER, jnp.int32))


def share_prefix(prefill: Cache, group: int, slots: int) -> Cache:
  """Makes what was just read the common prefix of `group` empty completions.

  Args:
    prefill: the cache after the prompts `[N, 1, P]`.
    group: number of completions of each prompt, `G`.
    slots: number of tokens that each completion has room for, `S`.

  Returns:
    A `Cache` with the prompt as prefix and an empty suffix `[N, G, S, ...]`.
  """
  prefix = prefill.suffix
  n, _, _, heads, width = prefix.keys[0].shape
  shape = (n, group, slots, heads, width)
  suffix = empty_segment(shape, len(prefix.keys), prefix.keys[0].dtype)
  return Cache(prefix, suffix, jnp.int32(0))


def write(buffer: Array, update: Array, index: Array) -> Array:
  """Writes `[N, G, L, ...]` into the slots `[index, index + L)` of `[N, G, S, ...]`."""
  if buffer.shape == update.shape:  # the whole segment at once, as in training
    return update.astype(buffer.dtype)
  return jax.lax.dynamic_update_slice_in_dim(
    buffer, update.astype(buffer.dtype), index, axis=2
  )
