"""Attention by the kernels of JAX: cuDNN's on NVIDIA GPUs, splash attention on TPUs.

Both know causal rows of some length, so that is what they are given. The keys of a prompt
are repeated for its completions and put before their own tokens, as many queries without a
meaning are put before theirs, and both are sorted by position, which puts padding last.

A kernel is taken only after it has agreed with `einsum`, on the device and with the heads
and dtype of the model, in values and gradients. There was no accelerator to develop this
on: cuDNN's kernel has never run here, and splash attention interpreted on CPUs only. All
around them is tested with JAX's own implementation of the former.
"""

import functools
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

from pgax.models.attend import einsum
from pgax.models.attend.parts import Part, ScoreScale, TokenPositions
from pgax.models.cache import NEVER
from pgax.models.layout import BATCH, Layout
from pgax.types import Array

_BLOCK = 128  # of splash attention
_SMALL = 128  # most tokens of a prompt, and of completions, that kernels are checked with


class Kernel(Protocol):
  """Causal attention of rows of some length; hashable."""

  def __call__(
    self, queries: Array, keys: Array, values: Array, lengths: Array, scale: float
  ) -> Array:
    """Attends from each token to itself and those before it.

    Args:
      queries: `[B, L, H, D]`.
      keys: `[B, L, K, D]`; `K` divides `H`.
      values: `[B, L, K, D]`.
      lengths: `[B]` int32, number of real tokens of each row, at least 1.
      scale: factor of the scores.

    Returns:
      `[B, L, H, D]`; undefined behind the last real token.
    """


def dot_product(
  queries: Array,
  keys: Array,
  values: Array,
  lengths: Array,
  scale: float,
  implementation: str = "cudnn",
) -> Array:
  """Calls `jax.nn.dot_product_attention`; see `Kernel`."""
  return jax.nn.dot_product_attention(
    queries,
    keys,
    values,
    scale=scale,
    is_causal=True,
    query_seq_lengths=lengths,
    key_value_seq_lengths=lengths,
    implementation=implementation,
  )


def splash(
  queries: Array,
  keys: Array,
  values: Array,
  lengths: Array,
  scale: float,
  interpret: bool = False,
) -> Array:
  """Calls splash attention; see `Kernel`. Padding is another segment than real tokens."""
  # It takes a second to import, and other devices don't need it.
  from jax.experimental.pallas.ops.tpu import splash_attention

  length, heads = queries.shape[1:3]
  padding = ((0, 0), (0, -length % _BLOCK), (0, 0), (0, 0))
  arrays = [jnp.pad(x, padding).swapaxes(1, 2) for x in (queries * scale, keys, values)]
  size = arrays[0].shape[2]
  mask = splash_attention.splash_attention_mask
  mask = mask.MultiHeadMask([mask.CausalMask((size, size))] * heads)
  kernel = splash_attention.splash_attention_kernel.make_splash_mha_single_device(
    mask, interpret=interpret
  )
  real = (jnp.arange(size) < lengths[:, None]).astype(jnp.int32)
  segments = splash_attention.splash_attention_kernel.SegmentIds(real, real)
  return jax.vmap(kernel)(*arrays, segments).swapaxes(1, 2)[:, :length]


KERNELS = {"gpu": dot_product, "tpu": splash}


def attend(
  kernel: Kernel,
  queries: Array,
  parts: tuple[Part, ...],
  positions: Array,
  scale: float,
  layout: Layout | None = None,
) -> Array:
  """Attends to all parts with one softmax.

  Compilers can't divide kernels, so each device of a mesh calls them on its rows and heads.

  Args:
    kernel: the kernel.
    queries: `[N, G, L, K, R, D]`, `R` queries for each key head.
    parts: keys, values and positions; those of the queries' own tokens are the last.
    positions: `[N, G, L]` positions of the queries.
    scale: factor of the scores.
    layout: where rows and key heads are on a mesh; None for one device.

  Returns:
    Averaged values `[N, G, L, K, R, D]`, float32; 0 at padding.
  """
  call = functools.partial(_attend, kernel, scale)
  if layout is not None:
    heads = layout.spec((BATCH, None, None, "attended_heads"), queries.shape)
    rows, kv_heads = P(heads[0]), P(heads[0], None, heads[3])
    call = jax.shard_map(
      call,
      mesh=layout.mesh,
      in_specs=(heads, (Part(kv_heads, kv_heads, rows),) * len(parts), rows),
      out_specs=heads,
      check_vma=False,
    )
  return call(queries, parts, positions)


def _attend(
  kernel: Kernel,
  scale: float,
  queries: Array,
  parts: tuple[Part, ...],
  positions: Array,
) -> Array:
  n, group, length, kv_heads, repeats, size = queries.shape

  def together(arrays: tuple[Array, ...], axis: int) -> Array:
    """Joins parts along an axis, those that a group shares repeated for each of it."""
    arrays = [jnp.broadcast_to(x, (n, group, *x.shape[2:])) for x in arrays]
    return jnp.concatenate(arrays, axis=axis)

  keys, values, key_positions = zip(*parts, strict=True)
  at = together(key_positions, 2)
  earlier = at.shape[2] - length  # number of keys before the queries' own
  order = jnp.argsort(at, axis=-1)
  real = (jnp.take_along_axis(at, order, axis=-1) < NEVER)[..., None, None]

  def rows(x: Array) -> Array:
    """Sorts `[N, G, S, H, D]` to rows of the kernel; padding gets zeros."""
    x = jnp.where(real, jnp.take_along_axis(x, order[..., None, None], axis=2), 0)
    return x.reshape(n * group, *x.shape[2:])

  queries = queries.reshape(n, group, length, kv_heads * repeats, size)
  queries = jnp.pad(queries, [(0, 0), (0, 0), (earlier, 0), (0, 0), (0, 0)])
  keys, values = (together(x, 3).swapaxes(2, 3) for x in (keys, values))
  lengths = jnp.maximum(jnp.sum(real, axis=(2, 3, 4), dtype=jnp.int32), 1).reshape(-1)
  output = kernel(rows(queries), rows(keys), rows(values), lengths, scale)
  output = output.reshape(n, group, *output.shape[1:])
  back = jnp.argsort(order, axis=-1)[..., earlier:, None, None]
  output = jnp.take_along_axis(output, back, axis=2).astype(jnp.float32)
  output = jnp.where((positions < NEVER)[..., None, None], output, 0.0)
  return output.reshape(n, group, length, kv_heads, repeats, size)


def obstacle(
  device: str,
  queries: Array,
  parts: tuple[Part, ...],
  tokens: TokenPositions,
  window: Array | None,
  scale: ScoreScale,
) -> str:
  """Returns why no kernel computes an attention on a device.

  Args:
    device: platform of the devices.
    queries: `[N, G, L, K, R, D]`.
    parts: keys, values and positions.
    tokens: positions and segments of the queries.
    window: window of the layer.
    scale: scale and cap of the scores.

  Returns:
    The first thing in the way, such as a property of the model that kernels don't have, or
    a disagreement with `einsum`; empty if the kernel may be taken.
  """
  kv_heads, repeats, size = queries.shape[3:]
  if device not in KERNELS:
    return f"there is no kernel for a {device}"
  if window is not None:
    return "sliding windows differ by layer; there must be none"
  if scale.softcap:
    return f"attention_softcap is {scale.softcap}; it must be 0"
  if tokens.segments is not None:
    return "rows hold several texts; they must hold one"
  dtype = queries.dtype.name
  if device == "gpu" and dtype not in ("bfloat16", "float16"):
    return f"the dtype is {dtype}; it must be bfloat16 or float16"
  if jax.default_backend() != device:
    return f"there is no {device} here to check its kernel on"
  length = min(queries.shape[2], _SMALL)
  prompt = min(sum(part.keys.shape[3] for part in parts[:-1]), _SMALL)
  shape = (prompt, length, kv_heads, repeats, size)
  return disagreement(KERNELS[device], shape, dtype, scale.scale)


@functools.lru_cache(maxsize=64)
def disagreement(
  kernel: Kernel, shape: tuple[int, int, int, int, int], dtype: str, scale: float
) -> str:
  """Compares a kernel with `einsum`, in values and gradients, on the device there is.

  Args:
    kernel: the kernel.
    shape: number of tokens of the prompt (0 for none), number of own tokens, key heads,
      queries for each of them, and head width.
    dtype: dtype of queries, keys and values.
    scale: factor of the scores.

  Returns:
    How it failed or how far it is off; empty if it agrees, within the rounding of the
    dtype.
  """
  prompt, length, kv_heads, repeats, size = shape
  rng = np.random.default_rng(0)

  def part(group: int, count: int, start: int) -> Part:
    ends = rng.integers(count // 2, count + 1, (2, group, 1))
    at = np.where(np.arange(count) < ends, np.arange(count) + start, NEVER)
    pair = rng.normal(size=(2, 2, group, kv_heads, count, size))
    return Part(*(jnp.asarray(x, dtype) for x in pair), jnp.asarray(at, jnp.int32))

  def gradients(attend, queries: Array, pairs: list) -> tuple:
    def loss(queries: Array, pairs: list) -> tuple[Array, Array]:
      given = tuple(Part(*x, y.positions) for x, y in zip(pairs, parts, strict=True))
      output = jnp.where(real, attend(queries, given), 0.0)
      return jnp.sum(output * weights), output

    return jax.grad(loss, argnums=(0, 1), has_aux=True)(queries, pairs)

  # It is called while a model is traced: nothing of it shall become part of the program.
  with jax.ensure_compile_time_eval():
    parts = (part(1, prompt, 0),) * bool(prompt) + (part(2, length, prompt),)
    at = parts[-1].positions
    queries = jnp.asarray(rng.normal(size=(2, 2, length, kv_heads, repeats, size)), dtype)
    weights, real = rng.normal(size=queries.shape), (at < NEVER)[..., None, None, None]
    tokens, whole = TokenPositions(at), ScoreScale(scale)
    given = queries, [x[:2] for x in parts]

    def by_kernel(queries: Array, parts: tuple[Part, ...]) -> Array:
      return attend(kernel, queries, parts, at, scale)

    def by_einsum(queries: Array, parts: tuple[Part, ...]) -> Array:
      return einsum.attend(queries, parts, tokens, None, whole)

    try:
      ours = jax.device_get(jax.jit(functools.partial(gradients, by_kernel))(*given))
    except Exception as error:  # whatever a compiler or a device does not support
      return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    with jax.default_matmul_precision("highest"):
      exact = jax.tree.map(lambda x: x.astype(jnp.float32), given)
      exact = jax.device_get(jax.jit(functools.partial(gradients, by_einsum))(*exact))
  tolerance = 1e-3 if dtype == "float32" else 3e-2
  for x, y in zip(*map(jax.tree.leaves, (ours, exact)), strict=True):
    error = np.max(np.abs(np.asarray(x, np.float32) - y)) / np.max(np.abs(y))
    if not error <= tolerance:
      return f"its results are {error:.1e} off, relative to the largest"
  return ""
