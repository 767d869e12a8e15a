"""Attention on NVIDIA GPUs by cuDNN's kernels.

cuDNN knows two masks: all keys up to a length, and causal ones. Tokens are therefore sorted
by position, which puts padding last. A prompt then needs a length only: its completions,
whose positions are later, attend to all of it. Their own tokens are causal.

`jax.nn.dot_product_attention` calls the same kernels, but rounds log-sums to the dtype of
the queries, and its backward pass can't be given those of all parts. So both kernels are
called below it, by functions that JAX does not promise to keep.

The programs are compared with what cuDNN documents; none has run on a GPU yet.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp

from pgax.models.attend.parts import MASKED, Part, Places, Scores
from pgax.models.cache import NEVER
from pgax.types import Array

try:
  from jax._src.cudnn import fused_attention_stablehlo as library
except ImportError:  # a version of JAX that has them elsewhere
  library = None

DTYPES = ("bfloat16", "float16")
_MAX_HEAD_DIM = 128  # of all GPUs with these kernels; from Hopper on it is 256


class Masks(NamedTuple):
  """What rows attend to: keys below a length, and of those all or the causal ones.

  Attributes:
    rows: `[B]` int32, number of rows of each batch entry; the others are padding.
    keys: `[B]` int32, number of keys.
    causal: whether the row `i` attends to the keys up to `i` only.
  """

  rows: Array
  keys: Array
  causal: bool


def forward(
  queries: Array, keys: Array, values: Array, masks: Masks, scale: float
) -> tuple[Array, Array]:
  """Calls the forward kernel.

  Args:
    queries: `[B, H, L, D]`.
    keys: `[B, K, S, D]`; `K` divides `H`.
    values: `[B, K, S, D]`.
    masks: what rows attend to.
    scale: factor of the scores.

  Returns:
    Averaged values `[B, H, L, D]` in the dtype of the queries, and log-sums `[B, H, L]`,
    float32. Those of padding are undefined.
  """
  operands, settings = _arguments(queries, keys, values, masks, scale)
  (mixed, log_sum), _ = library._dot_product_attention_fwd_rule(
    *operands, *settings, _version(), True
  )
  length = queries.shape[2]
  return mixed[:, :, :length], log_sum[:, :, :length]


def backward(
  queries: Array,
  keys: Array,
  values: Array,
  masks: Masks,
  scale: float,
  merged: tuple[Array, Array],
  gradient: Array,
) -> tuple[Array, Array, Array]:
  """Calls the backward kernel.

  Args:
    queries: `[B, H, L, D]`.
    keys: `[B, K, S, D]`.
    values: `[B, K, S, D]`.
    masks: what rows attend to.
    scale: factor of the scores.
    merged: averaged values and log-sums, possibly over more keys than these.
    gradient: `[B, H, L, D]`, gradient of the averaged values.

  Returns:
    Gradients of queries, keys and values.
  """
  operands, settings = _arguments(queries, keys, values, masks, scale)
  mixed, log_sum, gradient = (_even(x) for x in (*merged, gradient))
  gradients = library._dot_product_attention_bwd_rule(
    *settings, True, True, (*operands, log_sum, mixed), (gradient, None)
  )
  given = (queries, keys, values)
  return tuple(x[:, :, : y.shape[2]] for x, y in zip(gradients[:3], given, strict=True))


def _arguments(queries, keys, values, masks, scale):
  """Operands and static settings of both kernels, as the library orders them."""
  kind = library.MaskType.PADDING_CAUSAL if masks.causal else library.MaskType.PADDING
  none = jnp.zeros(0, queries.dtype)
  operands = (
    *(_even(x) for x in (queries, keys, values)),
    none,
    masks.rows,
    masks.keys,
    *[none] * 4,
  )
  layout = library.AttentionLayout.BNTH.value
  # Scale, seed and rate of the dropout, biases, mask, layout, window.
  return operands, (scale, 0, 0.0, (False, False), kind, layout, None)


def _even(x: Array) -> Array:
  """Pads rows or keys, `[B, H, L, ...]`, to an even number, which JAX requires."""
  return jnp.pad(x, [(0, 0), (0, 0), (0, x.shape[2] % 2)] + [(0, 0)] * (x.ndim - 3))


def _version() -> int:
  """Version of cuDNN; 0 where the program is only lowered."""
  versions = library.cuda_versions
  return versions.cudnn_get_version() if versions else 0


@dataclasses.dataclass(frozen=True)
class Cudnn:
  """Kernels for one part of the keys; see `merged.Kernel`.

  Attributes:
    forward_kernel: the forward kernel.
    backward_kernel: the backward kernel.
  """

  forward_kernel: Callable = forward
  backward_kernel: Callable = backward

  def forward(
    self,
    queries: Array,
    part: Part,
    where: Places,
    window: Array | None,
    scores: Scores,
    own: bool,
  ) -> tuple[Array, Array]:
    """Attends to a part, the last of which is that of the queries' own tokens."""
    del window
    call = _prepare(queries, part, where, own)
    keys, values = (call.keys(x) for x in part[:2])
    mixed, log_sum = self.forward_kernel(
      call.rows(queries), keys, values, call.masks, scores.scale
    )
    real = (where.positions < NEVER)[:, :, None, None]
    mixed = call.rows_back(mixed, queries.shape).astype(jnp.float32)
    log_sum = call.rows_back(log_sum, queries.shape[:-1])
    return jnp.where(real[..., None], mixed, 0.0), jnp.where(real, log_sum, MASKED)

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
    del window
    call = _prepare(queries, part, where, own)
    real = (where.positions < NEVER)[:, :, None, None]
    # Padding attends to a prompt as well: without a gradient, and with a log-sum for which
    # no probability overflows.
    gradient = jnp.where(real[..., None], gradient, 0.0).astype(queries.dtype)
    mixed, log_sum = merged[0].astype(queries.dtype), jnp.where(real, merged[1], -MASKED)
    keys, values = (call.keys(x) for x in part[:2])
    of_queries, of_keys, of_values = self.backward_kernel(
      call.rows(queries),
      keys,
      values,
      call.masks,
      scores.scale,
      (call.rows(mixed), call.rows(log_sum)),
      call.rows(gradient),
    )
    of_queries = jnp.where(real[..., None], call.rows_back(of_queries, queries.shape), 0)
    return of_queries, *(call.keys_back(x, part.keys.shape) for x in (of_keys, of_values))


class _Call(NamedTuple):
  """How arrays are laid out for the kernels.

  Attributes:
    masks: what rows attend to.
    row_order: `[N, G, L]`, order of the queries; None leaves them.
    key_order: `[N, g, S]`, order of the keys.
  """

  masks: Masks
  row_order: Array | None
  key_order: Array

  @property
  def shared(self) -> bool:
    return self.row_order is None and self.key_order.shape[1] == 1

  def rows(self, x: Array) -> Array:
    """Lays out `[N, G, K, R, L, ...]` as `[B, H, L, ...]`, or `[N, H, G * L, ...]`."""
    n, group, heads, repeats, length, *rest = x.shape
    if self.row_order is not None:
      x = _take(x, self.row_order, 4)
    x = x.reshape(n, group, heads * repeats, length, *rest)
    if self.shared:
      return x.swapaxes(1, 2).reshape(n, heads * repeats, group * length, *rest)
    return x.reshape(n * group, heads * repeats, length, *rest)

  def rows_back(self, x: Array, shape: tuple[int, ...]) -> Array:
    """Undoes `rows`, to `shape`."""
    n, group, heads, repeats, length, *rest = shape
    if self.shared:
      return x.reshape(n, heads, repeats, group, length, *rest).transpose(
        0, 3, 1, 2, 4, *range(5, 5 + len(rest))
      )
    x = x.reshape(shape)
    return x if self.row_order is None else _take(x, _inverse(self.row_order), 4)

  def keys(self, x: Array) -> Array:
    """Lays out `[N, g, K, S, D]` as `[B, K, S, D]`."""
    x = _take(x, self.key_order, 3)
    return x.reshape(-1, *x.shape[2:])

  def keys_back(self, x: Array, shape: tuple[int, ...]) -> Array:
    """Undoes `keys`; keys that nothing attends to get 0."""
    x = x.reshape(shape)
    count = self.masks.keys.reshape(*shape[:2], 1, 1, 1)
    x = jnp.where(jnp.arange(shape[3])[:, None] < count, x, 0)
    return _take(x, _inverse(self.key_order), 3)


def _prepare(queries: Array, part: Part, where: Places, own: bool) -> _Call:
  """Sorts tokens by position and counts them."""
  group, length = queries.shape[1], queries.shape[4]
  keys = jnp.sum(part.positions < NEVER, axis=-1, dtype=jnp.int32).reshape(-1)
  order = jnp.argsort(part.positions, axis=-1)
  # The kernels are never given rows of length 0: an empty completion attends to
  # a token of padding, and its results are masked.
  if own:
    count = jnp.maximum(keys, 1)
    return _Call(Masks(count, count, True), order, order)
  rows = length * group if part.keys.shape[1] == 1 else length
  full = jnp.full(keys.shape, rows, jnp.int32)
  return _Call(Masks(full, jnp.maximum(keys, 1), False), None, order)


def _take(x: Array, order: Array, axis: int) -> Array:
  """Takes entries along an axis by an order `[N, G, L]`."""
  shape = [1] * x.ndim
  shape[:2], shape[axis] = order.shape[:2], order.shape[2]
  return jnp.take_along_axis(x, order.reshape(shape), axis)


def _inverse(order: Array) -> Array:
  """Inverts permutations along the last axis."""
  return jnp.argsort(order, axis=-1)


def refusal(
  queries: Array, window: Array | None, where: Places, scores: Scores
) -> str | None:
  """Says why the kernels can't compute an attention.

  Args:
    queries: `[N, G, L, K, R, D]`.
    window: window of the layer.
    where: places of the queries.
    scores: how scores are computed.

  Returns:
    What is not possible, and what is; None if nothing is in the way.
  """
  size = queries.shape[-1]
  reasons: tuple[tuple[Any, str], ...] = (
    (library is None, "this version of JAX has its kernels elsewhere"),
    (
      queries.dtype.name not in DTYPES,
      f"the dtype is {queries.dtype}; it must be {' or '.join(DTYPES)}",
    ),
    (
      size % 8 or size > _MAX_HEAD_DIM,
      f"head_dim is {size}; it must be a multiple of 8, at most {_MAX_HEAD_DIM}",
    ),
    (window is not None, "sliding windows differ by layer; there must be none"),
    (scores.softcap, f"attention_softcap is {scores.softcap}; it must be 0"),
    (where.segments is not None, "rows hold several texts; they must hold one"),
  )
  return next((text for failed, text in reasons if failed), None)
