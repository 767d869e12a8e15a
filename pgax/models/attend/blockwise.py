"""Attention in blocks, whose memory is linear in the length (arXiv 2112.05682, 2205.14135).

Scores of one block of queries and one block of keys are in memory at a time, and a running
softmax sums over the blocks. Blocks of which no query attends to a key are skipped. The
backward pass computes the scores again, with the log-sums of all parts together: then the
gradient of each part is that of the one softmax, and the log-sums need no derivative.

Inside, queries are `[N, G, K, R, L, D]`. Those of a group that shares its keys are folded
into one long row, so that every product is a plain one, `[rows, D]` by `[D, S]`.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp

from pgax.models.attend.blocks import (
  Blocks,
  Keys,
  fold,
  fold_places,
  reaches,
  unfold,
)
from pgax.models.attend.merged import merge
from pgax.models.attend.parts import MASKED, Part, Places, Scores, visible
from pgax.models.cache import NEVER
from pgax.types import Array

_BLOCK = 128  # most queries, and most keys, in a block


@functools.partial(jax.custom_vjp, nondiff_argnums=(4, 5))
def attend(
  queries: Array,
  parts: tuple[Part, ...],
  where: Places,
  window: Array | None,
  scores: Scores,
  block: int = _BLOCK,
) -> tuple[Array, Array]:
  """Attends to all parts with one softmax.

  Args:
    queries: `[N, G, L, K, R, D]`, `R` queries for each key head.
    parts: keys, values and positions.
    where: positions and segments `[N, G, L]` of the queries; with segments there is one
      part, whose keys have the same.
    window: int32 scalar; None for no window.
    scores: how scores are computed.
    block: largest number of queries, and of keys, in a block.

  Returns:
    Averaged values `[N, G, L, K, R, D]` and log-sums of the exponentiated scores
    `[N, G, L, K, R]`, both float32; the log-sums have no gradient. Queries at `NEVER`,
    which are padding, attend to nothing and get 0.
  """
  outputs, _ = _forward(queries, parts, where, window, scores, block)
  return outputs


def _forward(queries, parts, where, window, scores, block):
  queries, parts, where = _tied(queries, parts, where)
  length, repeats = queries.shape[2], queries.shape[4]
  rows = Blocks(length, block)
  padded, places = rows.pad(jnp.moveaxis(queries, 2, 4), 4), rows.pad_places(where)
  keys = [Keys(part, where.segments, block) for part in parts]
  reached = [reaches(rows, places, x.blocks, x.places, window) for x in keys]

  def attend_from(i: Array) -> tuple[Array, Array]:
    query, block_places = rows.take(padded, i, 4), rows.take_places(places, i)
    sums = (jnp.zeros(query.shape), jnp.full(query.shape[:-1], MASKED))
    for part, reach in zip(keys, reached, strict=True):
      folded = fold(query, part.shared)
      place = fold_places(block_places, repeats, part.shared)

      def add(j, state, part=part, folded=folded, place=place):
        return _add_block(state, folded, place, part.block(j), window, scores)

      shape = folded.shape
      start = jnp.full(shape[:-1], MASKED), jnp.zeros(shape[:-1]), jnp.zeros(shape)
      mixed, log_sum = _finish(_over(reach[i], add, start))
      sums = merge(sums, (unfold(mixed, query.shape), unfold(log_sum, query.shape[:-1])))
    return sums

  merged = jax.lax.map(attend_from, jnp.arange(rows.count))
  outputs = tuple(jnp.moveaxis(rows.join(x, 4), 4, 2) for x in merged)
  return outputs, (queries, parts, where, window, outputs)


def _tied(
  queries: Array, parts: tuple[Part, ...], where: Places
) -> tuple[Array, tuple[Part, ...], Places]:
  """Makes positions depend on queries.

  Layers share positions, so a scan over layers that is differentiated would compute what
  depends on them alone, such as the masks of all blocks, ahead of the layers, and hold it:
  that is quadratic in the length.
  """
  positions = tuple(part.positions for part in parts)
  queries, positions, where = jax.lax.optimization_barrier((queries, positions, where))
  parts = tuple(
    part._replace(positions=x) for part, x in zip(parts, positions, strict=True)
  )
  return queries, parts, where


def _backward(scores, block, saved, cotangents):
  queries, parts, where, window, (mixed, log_sum) = saved
  gradient, _ = cotangents
  repeats, rows = queries.shape[4], Blocks(queries.shape[2], block)
  inside = jnp.sum(gradient * mixed, axis=-1)
  arrays = (queries, gradient.astype(queries.dtype), log_sum, inside)
  arrays = [rows.pad(jnp.moveaxis(x, 2, 4), 4) for x in arrays]
  places = rows.pad_places(where)
  keys = [Keys(part, where.segments, block) for part in parts]
  reached = [reaches(rows, places, x.blocks, x.places, window) for x in keys]

  def attend_from(sums: list, i: Array) -> tuple[list, Array]:
    chosen = [rows.take(x, i, 4) for x in arrays]
    block_places = rows.take_places(places, i)
    total, new = jnp.zeros(chosen[0].shape), []
    for part, reach, partial in zip(keys, reached, sums, strict=True):
      folded = [fold(x, part.shared) for x in chosen]
      place = fold_places(block_places, repeats, part.shared)

      def add(j, state, part=part, folded=folded, place=place):
        *of_block, of_queries = _block_gradients(
          folded, place, part.block(j), window, scores
        )
        added = [part.add(x, y, j) for x, y in zip(state[:2], of_block, strict=True)]
        return (*added, state[2] + of_queries)

      start = (*partial, jnp.zeros(folded[0].shape))
      *added, of_queries = _over(reach[i], add, start)
      total += unfold(of_queries, total.shape)
      new.append(tuple(added))
    return new, total

  start = [(jnp.zeros(x.keys.shape), jnp.zeros(x.values.shape)) for x in keys]
  sums, of_queries = jax.lax.scan(attend_from, start, jnp.arange(rows.count))
  of_queries = jnp.moveaxis(rows.join(of_queries, 4), 4, 2).astype(queries.dtype)
  of_parts = tuple(
    Part(*(part.cut(x).astype(y.dtype) for x, y in zip(pair, given[:2], strict=True)), None)
    for part, pair, given in zip(keys, sums, parts, strict=True)
  )
  return of_queries, of_parts, None, None


attend.defvjp(_forward, _backward)


def _add_block(state, queries, row_places, block, window, scores):
  """Adds a block of keys to the running softmax: highest score, sum and weighted sum."""
  highest, total, mixed = state
  keys, values, places = block
  seen = _seen(row_places, places, window)
  score = jnp.where(seen, scores(_products(queries, keys)), MASKED)
  new = jnp.maximum(highest, jnp.max(score, axis=-1))
  probs = jnp.where(seen, jnp.exp(score - new[..., None]), 0.0)
  shrink = jnp.exp(highest - new)
  total = total * shrink + jnp.sum(probs, axis=-1)
  mixed = mixed * shrink[..., None] + _products(
    probs.astype(values.dtype), values, transposed=False
  )
  return new, total, mixed


def _block_gradients(rows, row_places, block, window, scores):
  """Gradients of a block's keys and values, and its part of the gradient of the queries."""
  queries, gradient, log_sum, inside = rows
  keys, values, places = block
  score = scores(_products(queries, keys))
  probs = jnp.where(
    _seen(row_places, places, window), jnp.exp(score - log_sum[..., None]), 0.0
  )
  of_probs = _products(gradient, values)
  of_scores = probs * (of_probs - inside[..., None]) * scores.derivative(score)
  of_scores = of_scores.astype(queries.dtype)
  of_keys = _products(of_scores.mT, queries, transposed=False)
  of_values = _products(probs.astype(values.dtype).mT, gradient, transposed=False)
  return of_keys, of_values, _products(of_scores, keys, transposed=False)


def _products(left: Array, right: Array, transposed: bool = True) -> Array:
  """Multiplies matrices, the right one transposed or not, to float32."""
  formula = "ngkmd,ngksd->ngkms" if transposed else "ngkms,ngksd->ngkmd"
  return jnp.einsum(formula, left, right, preferred_element_type=jnp.float32)


def _seen(rows: Places, places: Places, window: Array | None) -> Array:
  """Returns which keys `[N, G, 1, rows, S]` the rows attend to; padding attends to none."""
  real = rows.positions[..., None] < NEVER
  return (visible(rows, places, window) & real)[:, :, None]


def _finish(state: tuple[Array, Array, Array]) -> tuple[Array, Array]:
  """Averages and log-sums of a running softmax; rows that attend to nothing get 0."""
  highest, total, mixed = state
  total = jnp.maximum(total, jnp.finfo(jnp.float32).tiny)
  return mixed / total[..., None], highest + jnp.log(total)


def _over(reach: Array, add: Any, start: tuple) -> tuple:
  """Folds the blocks of keys that something attends to."""

  def step(j: Array, state: tuple) -> tuple:
    return jax.lax.cond(reach[j], lambda: add(j, state), lambda: state)

  return jax.lax.fori_loop(0, len(reach), step, start)
