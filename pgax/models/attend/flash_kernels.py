"""Kernels in Pallas for TPUs: forward pass, gradients of queries, gradients of keys.

Scores are computed transposed, `[keys, rows]`: what belongs to a row (its log-sum, its
place) is then a vector along the lanes, and sums over keys are cheap.

All arrays are padded to whole blocks. Rows are queries `[B, K, M, D]` of `K` key heads, and
keys and values are `[B, K, S, D]`. Places are `[B, C, M]` and `[B, C, S]` int32: positions,
and with `C` of 2 also segments. What belongs to a row is `[B, K, 1, M]` float32.

The last axis of each grid runs over the blocks that are summed up. A table, read before the
kernel starts, says which of them to fetch; see `fetches`.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from pgax.models.attend.parts import MASKED, Scores
from pgax.models.cache import NEVER
from pgax.types import Array

_NEITHER = (((1,), (1,)), ((), ()))  # left @ right.T
_LEFT = (((0,), (0,)), ((), ()))  # left.T @ right


class Shape(NamedTuple):
  """Static settings of the kernels.

  Attributes:
    rows: number of rows in a block.
    keys: number of keys in a block.
    scores: how scores are computed.
    windowed: whether there is a window.
    interpret: whether to interpret the kernels.
  """

  rows: int
  keys: int
  scores: Scores
  windowed: bool
  interpret: bool


def fetches(reached: Array) -> Array:
  """Says which block to have in memory at each step of a grid.

  Args:
    reached: `[blocks, steps]` bool, whether the block meets that of the step.

  Returns:
    `[blocks, steps]` int32: the step's own block if they meet; else the last one before
    that does, which is in memory already, or the first one.
  """
  steps = jnp.arange(reached.shape[1])
  last = jax.lax.cummax(jnp.where(reached, steps, -1), axis=1)
  first = jnp.argmax(reached, axis=1)[:, None]
  return jnp.where(last < 0, first, last).astype(jnp.int32)


def forward(
  shape: Shape,
  window: Array,
  reached: Array,
  places: tuple[Array, Array],
  queries: Array,
  keys: Array,
  values: Array,
) -> tuple[Array, Array]:
  """Attends to the keys.

  Args:
    shape: static settings.
    window: int32 scalar; ignored without a window.
    reached: `[blocks of rows, blocks of keys]` bool, whether anything in them meets.
    places: places of rows and keys.
    queries: `[B, K, M, D]`.
    keys: `[B, K, S, D]`.
    values: `[B, K, S, D]`.

  Returns:
    Averaged values `[B, K, M, D]` and log-sums `[B, K, 1, M]`, float32.
  """
  row, key = _blocks(shape, queries, keys, over_keys=True)
  batch, heads, count, size = queries.shape
  return _call(
    functools.partial(_forward, shape),
    shape,
    window,
    reached,
    (batch, heads),
    [
      *(row.place(places[0]), key.place(places[1])),
      *(row.matrix(queries), key.matrix(keys), key.matrix(values)),
    ],
    [
      row.matrix(jax.ShapeDtypeStruct(queries.shape, jnp.float32)),
      row.vector(jax.ShapeDtypeStruct((batch, heads, 1, count), jnp.float32)),
    ],
    [(1, shape.rows), (1, shape.rows), (size, shape.rows)],
  )


def of_queries(
  shape: Shape,
  window: Array,
  reached: Array,
  places: tuple[Array, Array],
  rows: tuple[Array, Array, Array, Array],
  keys: Array,
  values: Array,
) -> Array:
  """Computes the gradient of the queries.

  Args:
    shape: static settings.
    window: int32 scalar; ignored without a window.
    reached: `[blocks of rows, blocks of keys]` bool.
    places: places of rows and keys.
    rows: queries and gradients of the averages `[B, K, M, D]`, log-sums, and the inner
      products of averages and their gradients, `[B, K, 1, M]`.
    keys: `[B, K, S, D]`.
    values: `[B, K, S, D]`.

  Returns:
    `[B, K, M, D]` float32.
  """
  queries = rows[0]
  row, key = _blocks(shape, queries, keys, over_keys=True)
  (result,) = _call(
    functools.partial(_of_queries, shape),
    shape,
    window,
    reached,
    queries.shape[:2],
    _inputs(row, key, places, rows, keys, values),
    [row.matrix(jax.ShapeDtypeStruct(queries.shape, jnp.float32))],
    [(queries.shape[-1], shape.rows)],
  )
  return result


def of_keys(
  shape: Shape,
  window: Array,
  reached: Array,
  places: tuple[Array, Array],
  rows: tuple[Array, Array, Array, Array],
  keys: Array,
  values: Array,
) -> tuple[Array, Array]:
  """Computes the gradients of keys and values, `[B, K, S, D]` float32; see `of_queries`."""
  row, key = _blocks(shape, rows[0], keys, over_keys=False)
  return _call(
    functools.partial(_of_keys, shape),
    shape,
    window,
    reached.T,
    keys.shape[:2],
    _inputs(row, key, places, rows, keys, values),
    [key.matrix(jax.ShapeDtypeStruct(x.shape, jnp.float32)) for x in (keys, values)],
    [(shape.keys, keys.shape[-1])] * 2,
  )


class _Axis(NamedTuple):
  """How blocks along rows, or along keys, are taken at each step of a grid.

  Attributes:
    size: number of entries in a block.
    index: index of the block, given the grid's last two indices and the table.
  """

  size: int
  index: Callable

  def matrix(self, x: Array) -> tuple[Array, pl.BlockSpec]:
    """Takes blocks `[size, D]` of `[B, K, M, D]`."""
    index = self.index
    return x, pl.BlockSpec(
      (None, None, self.size, x.shape[-1]), lambda b, k, i, j, t: (b, k, index(i, j, t), 0)
    )

  def vector(self, x: Array) -> tuple[Array, pl.BlockSpec]:
    """Takes blocks `[1, size]` of `[B, K, 1, M]`."""
    index = self.index
    return x, pl.BlockSpec(
      (None, None, 1, self.size), lambda b, k, i, j, t: (b, k, 0, index(i, j, t))
    )

  def place(self, x: Array) -> tuple[Array, pl.BlockSpec]:
    """Takes blocks `[C, size]` of `[B, C, M]`."""
    index = self.index
    return x, pl.BlockSpec(
      (None, x.shape[1], self.size), lambda b, k, i, j, t: (b, 0, index(i, j, t))
    )


def _blocks(
  shape: Shape, queries: Array, keys: Array, over_keys: bool
) -> tuple[_Axis, _Axis]:
  """Blocks of rows and of keys, in a grid that sums over keys or over rows."""
  summed = keys.shape[2] // shape.keys if over_keys else queries.shape[2] // shape.rows

  def outer(i, j, table):
    del j, table
    return i

  def fetched(i, j, table):
    return table[1 + i * summed + j]

  if over_keys:
    return _Axis(shape.rows, outer), _Axis(shape.keys, fetched)
  return _Axis(shape.rows, fetched), _Axis(shape.keys, outer)


def _inputs(row, key, places, rows, keys, values):
  """Inputs of the backward kernels."""
  return [
    *(row.place(places[0]), key.place(places[1])),
    *(row.matrix(x) for x in rows[:2]),
    *(row.vector(x) for x in rows[2:]),
    *(key.matrix(keys), key.matrix(values)),
  ]


def _call(kernel, shape, window, reached, leading, inputs, outputs, scratch):
  """Calls a kernel on a grid `[*leading, blocks, blocks that are summed up]`."""
  table = jnp.concatenate([window.reshape(1), fetches(reached).reshape(-1)])
  return pl.pallas_call(
    kernel,
    out_shape=[x for x, _ in outputs],
    grid_spec=pltpu.PrefetchScalarGridSpec(
      num_scalar_prefetch=1,
      grid=(*leading, *reached.shape),
      in_specs=[spec for _, spec in inputs],
      out_specs=[spec for _, spec in outputs],
      scratch_shapes=[pltpu.VMEM(size, jnp.float32) for size in scratch],
    ),
    compiler_params=pltpu.CompilerParams(
      dimension_semantics=("parallel", "parallel", "parallel", "arbitrary")
    ),
    interpret=shape.interpret,
  )(table, *(x for x, _ in inputs))


def _steps(table, sums, starts, add, finish) -> None:
  """Runs a step of a grid that sums up blocks: start, add the block if it meets, finish."""
  i, j, steps = pl.program_id(2), pl.program_id(3), pl.num_programs(3)

  @pl.when(j == 0)
  def _start():
    for ref, value in zip(sums, starts, strict=True):
      ref[...] = jnp.full(ref.shape, value, ref.dtype)

  pl.when(table[1 + i * steps + j] == j)(add)
  pl.when(j == steps - 1)(finish)


def _forward(
  shape, table, row_places, key_places, queries, keys, values, mixed, log_sum, *sums
):
  highest, total, weighted = sums

  def add():
    seen = _seen(shape, table, row_places, key_places)
    score = shape.scores(_product(keys[...], queries[...], _NEITHER))
    score = jnp.where(seen, score, MASKED)
    new = jnp.maximum(highest[...], jnp.max(score, axis=0, keepdims=True))
    probs = jnp.where(seen, jnp.exp(score - new), 0.0)
    shrink = jnp.exp(highest[...] - new)
    total[...] = total[...] * shrink + jnp.sum(probs, axis=0, keepdims=True)
    update = _product(values[...], probs.astype(values.dtype), _LEFT)
    weighted[...] = weighted[...] * shrink + update
    highest[...] = new

  def finish():
    some = jnp.maximum(total[...], jnp.finfo(jnp.float32).tiny)
    log_sum[...] = highest[...] + jnp.log(some)
    mixed[...] = (weighted[...] / some).T

  _steps(table, sums, (MASKED, 0.0, 0.0), add, finish)


def _of_queries(shape, table, *refs):
  *inputs, result, total = refs
  keys = inputs[-2]

  def add():
    _, of_scores = _of_scores(shape, table, *inputs)
    total[...] += _product(keys[...], of_scores, _LEFT)

  def finish():
    result[...] = total[...].T

  _steps(table, (total,), (0.0,), add, finish)


def _of_keys(shape, table, *refs):
  *inputs, key_result, value_result, key_total, value_total = refs
  queries, gradient = inputs[2:4]

  def add():
    probs, of_scores = _of_scores(shape, table, *inputs)
    key_total[...] += _product(of_scores, queries[...])
    value_total[...] += _product(probs, gradient[...])

  def finish():
    key_result[...] = key_total[...]
    value_result[...] = value_total[...]

  _steps(table, (key_total, value_total), (0.0, 0.0), add, finish)


def _of_scores(
  shape, table, row_places, key_places, queries, gradient, log_sum, inside, keys, values
):
  """Probabilities of a block, and gradients of its products, both `[keys, rows]`."""
  seen = _seen(shape, table, row_places, key_places)
  score = shape.scores(_product(keys[...], queries[...], _NEITHER))
  probs = jnp.where(seen, jnp.exp(score - log_sum[...]), 0.0)
  of_probs = _product(values[...], gradient[...], _NEITHER)
  result = probs * (of_probs - inside[...]) * shape.scores.derivative(score)
  return probs.astype(gradient.dtype), result.astype(queries.dtype)


def _seen(shape, table, row_places, key_places):
  """Returns which keys the rows attend to, `[keys, rows]`; padding attends to none."""
  row, key = row_places[...], key_places[...].T
  position, key_position = row[:1], key[:, :1]
  seen = (key_position <= position) & (position < NEVER)
  if shape.windowed:
    seen &= position - key_position < table[0]
  if row.shape[0] > 1:
    seen &= row[1:] == key[:, 1:]
  return seen


def _product(left, right, dims=(((1,), (0,)), ((), ()))):
  """Multiplies matrices, to float32."""
  return jax.lax.dot_general(left, right, dims, preferred_element_type=jnp.float32)
