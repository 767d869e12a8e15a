"""Attention in blocks, whose memory is linear in the length (arXiv 2112.05682, 2205.14135).

Scores of one block of queries and one block of keys are in memory at a time, and a running
softmax sums over the blocks. Blocks of which no query attends to a key are skipped. The
backward pass computes the scores again, with the log-sums of all parts together: then the
gradient of each part is that of the one softmax, and the log-sums need no derivative.

Inside, queries are `[N, G, K, R, L, D]`. Those of a group that shares its keys are folded
into one long row, so that every product is a plain one, `[rows, D]` by `[D, S]`.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp

from pgax.models.attend.blocks import (
  Blocks,
  Keys,
  fold,
  fold_tokens,
  reaches,
  unfold,
)
from pgax.models.attend.parts import MASKED, Part, ScoreScale, TokenPositions, visible
from pgax.models.cache import NEVER
from pgax.types import Array

_BLOCK = 128  # most queries, and most keys, in a block


@functools.partial(jax.custom_vjp, nondiff_argnums=(4, 5))
def attend(
  queries: Array,
  parts: tuple[Part, ...],
  tokens: TokenPositions,
  window: Array | None,
  scale: ScoreScale,
  block: int = _BLOCK,
) -> Array:
  """Attends to all parts with one softmax.

  Args:
    queries: `[N, G, L, K, R, D]`, `R` queries for each key head.
    parts: keys, values and positions.
    tokens: positions and segments `[N, G, L]` of the queries; with segments there is one
      part, whose keys have the same.
    window: int32 scalar; None for no window.
    scale: scale and cap of the scores.
    block: largest number of queries, and of keys, in a block.

  Returns:
    Averaged values `[N, G, L, K, R, D]`, float32. Queries at `NEVER`, which are padding,
    attend to nothing and get 0.
  """
  return _forward(queries, parts, tokens, window, scale, block)[0]


def _forward(
  queries: Array,
  parts: tuple[Part, ...],
  tokens: TokenPositions,
  window: Array | None,
  scale: ScoreScale,
  block: int,
) -> tuple[Array, tuple]:
  queries, parts, tokens = _tied(queries, parts, tokens)
  length, repeats = queries.shape[2], queries.shape[4]
  rows = Blocks(length, block)
  padded, row_tokens = rows.pad(jnp.moveaxis(queries, 2, 4), 4), rows.pad_tokens(tokens)
  keys = [Keys(part, tokens.segments, block) for part in parts]
  reached = [reaches(rows, row_tokens, x.blocks, x.tokens, window) for x in keys]

  def attend_from(i: Array) -> tuple[Array, Array]:
    query, block_tokens = rows.take(padded, i, 4), rows.take_tokens(row_tokens, i)
    sums = (jnp.zeros(query.shape), jnp.full(query.shape[:-1], MASKED))
    for part, reach in zip(keys, reached, strict=True):
      folded = fold(query, part.shared)
      positions = fold_tokens(block_tokens, repeats, part.shared)

      def add(j, state, part=part, folded=folded, positions=positions):
        return _add_block(state, folded, positions, part.block(j), window, scale)

      shape = folded.shape
      start = jnp.full(shape[:-1], MASKED), jnp.zeros(shape[:-1]), jnp.zeros(shape)
      output, lse = _finish(_over(reach[i], add, start))
      sums = _merge(sums, (unfold(output, query.shape), unfold(lse, query.shape[:-1])))
    return sums

  merged = jax.lax.map(attend_from, jnp.arange(rows.count))
  output, lse = (jnp.moveaxis(rows.join(x, 4), 4, 2) for x in merged)
  return output, (queries, parts, tokens, window, output, lse)


def _tied(
  queries: Array, parts: tuple[Part, ...], tokens: TokenPositions
) -> tuple[Array, tuple[Part, ...], TokenPositions]:
  """Makes positions depend on queries.

  Layers share positions, so a scan over layers that is differentiated would compute what
  depends on them alone, such as the masks of all blocks, ahead of the layers, and hold it:
  that is quadratic in the length.
  """
  positions = tuple(part.positions for part in parts)
  queries, positions, tokens = jax.lax.optimization_barrier((queries, positions, tokens))
  parts = tuple(
    part._replace(positions=x) for part, x in zip(parts, positions, strict=True)
  )
  return queries, parts, tokens


def _backward(scale: ScoreScale, block: int, saved: tuple, gradient: Array) -> tuple:
  queries, parts, tokens, window, output, lse = saved
  repeats, rows = queries.shape[4], Blocks(queries.shape[2], block)
  delta = jnp.sum(gradient * output, axis=-1)
  arrays = (queries, gradient.astype(queries.dtype), lse, delta)
  arrays = [rows.pad(jnp.moveaxis(x, 2, 4), 4) for x in arrays]
  row_tokens = rows.pad_tokens(tokens)
  keys = [Keys(part, tokens.segments, block) for part in parts]
  reached = [reaches(rows, row_tokens, x.blocks, x.tokens, window) for x in keys]

  def attend_from(sums: list, i: Array) -> tuple[list, Array]:
    chosen = [rows.take(x, i, 4) for x in arrays]
    block_tokens = rows.take_tokens(row_tokens, i)
    total, new = jnp.zeros(chosen[0].shape), []
    for part, reach, partial in zip(keys, reached, sums, strict=True):
      folded = [fold(x, part.shared) for x in chosen]
      positions = fold_tokens(block_tokens, repeats, part.shared)

      def add(j, state, part=part, folded=folded, positions=positions):
        dk_sum, dv_sum, dq_sum = state
        dk, dv, dq = _block_gradients(folded, positions, part.block(j), window, scale)
        return part.add(dk_sum, dk, j), part.add(dv_sum, dv, j), dq_sum + dq

      start = (*partial, jnp.zeros(folded[0].shape))
      dk, dv, dq = _over(reach[i], add, start)
      total += unfold(dq, total.shape)
      new.append((dk, dv))
    return new, total

  start = [(jnp.zeros(x.keys.shape), jnp.zeros(x.values.shape)) for x in keys]
  sums, dq = jax.lax.scan(attend_from, start, jnp.arange(rows.count))
  dq = jnp.moveaxis(rows.join(dq, 4), 4, 2).astype(queries.dtype)
  d_parts = tuple(
    Part(x.cut(dk).astype(part.keys.dtype), x.cut(dv).astype(part.values.dtype), None)
    for x, (dk, dv), part in zip(keys, sums, parts, strict=True)
  )
  return dq, d_parts, None, None


attend.defvjp(_forward, _backward)


def _add_block(
  state: tuple[Array, Array, Array],
  queries: Array,
  row_tokens: TokenPositions,
  block: tuple[Array, Array, TokenPositions],
  window: Array | None,
  scale: ScoreScale,
) -> tuple[Array, Array, Array]:
  """Adds a block of keys to the running softmax: highest score, sum and weighted sum."""
  highest, total, output = state
  keys, values, tokens = block
  mask = _mask(row_tokens, tokens, window)
  scores = jnp.where(mask, scale(_products(queries, keys)), MASKED)
  new = jnp.maximum(highest, jnp.max(scores, axis=-1))
  probs = jnp.where(mask, jnp.exp(scores - new[..., None]), 0.0)
  shrink = jnp.exp(highest - new)
  total = total * shrink + jnp.sum(probs, axis=-1)
  output = output * shrink[..., None] + _products(
    probs.astype(values.dtype), values, transposed=False
  )
  return new, total, output


def _block_gradients(
  rows: list[Array],
  row_tokens: TokenPositions,
  block: tuple[Array, Array, TokenPositions],
  window: Array | None,
  scale: ScoreScale,
) -> tuple[Array, Array, Array]:
  """Computes `dk` and `dv` of a block of keys, and its part of `dq`."""
  queries, gradient, lse, delta = rows
  keys, values, tokens = block
  scores = scale(_products(queries, keys))
  mask = _mask(row_tokens, tokens, window)
  probs = jnp.where(mask, jnp.exp(scores - lse[..., None]), 0.0)
  d_probs = _products(gradient, values)
  d_scores = probs * (d_probs - delta[..., None]) * scale.derivative(scores)
  d_scores = d_scores.astype(queries.dtype)
  dk = _products(d_scores.mT, queries, transposed=False)
  dv = _products(probs.astype(values.dtype).mT, gradient, transposed=False)
  return dk, dv, _products(d_scores, keys, transposed=False)


def _products(left: Array, right: Array, transposed: bool = True) -> Array:
  """Multiplies matrices, the right one transposed or not, to float32."""
  formula = "ngkmd,ngksd->ngkms" if transposed else "ngkms,ngksd->ngkmd"
  return jnp.einsum(formula, left, right, preferred_element_type=jnp.float32)


def _mask(rows: TokenPositions, keys: TokenPositions, window: Array | None) -> Array:
  """Returns which keys `[N, G, 1, rows, S]` rows attend to; padding attends to none."""
  real = rows.positions[..., None] < NEVER
  return (visible(rows, keys, window) & real)[:, :, None]


def _finish(state: tuple[Array, Array, Array]) -> tuple[Array, Array]:
  """Averages and log-sums of a running softmax; rows that attend to nothing get 0."""
  highest, total, output = state
  total = jnp.maximum(total, jnp.finfo(jnp.float32).tiny)
  return output / total[..., None], highest + jnp.log(total)


def _merge(one: tuple[Array, Array], other: tuple[Array, Array]) -> tuple[Array, Array]:
  """Merges averages `[..., D]` and log-sums `[...]` of two parts into one softmax."""
  lse = jnp.logaddexp(one[1], other[1])
  weights = [jnp.exp(x[1] - lse)[..., None] for x in (one, other)]
  return one[0] * weights[0] + other[0] * weights[1], lse


def _over(reach: Array, add: Callable[[Array, tuple], tuple], start: tuple) -> tuple:
  """Folds the blocks of keys that something attends to."""

  def step(j: Array, state: tuple) -> tuple:
    return jax.lax.cond(reach[j], lambda: add(j, state), lambda: state)

  return jax.lax.fori_loop(0, len(reach), step, start)
