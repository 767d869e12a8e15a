"""Attention by kernels that attend to one part of the keys, merged by their log-sums.

Each kernel returns averaged values and log-sums. No library differentiates log-sums, and
none has to: the backward pass calls each part's kernel with the average and the log-sums of
all parts together. Its result is the part's share of the gradient of the one softmax.
"""

import functools
from typing import Protocol

import jax
import jax.numpy as jnp

from pgax.models.attend.parts import Part, Places, Scores
from pgax.types import Array


class Kernel(Protocol):
  """A pair of kernels for one part of the keys; hashable, as it is a static argument.

  Inside, queries are `[N, G, K, R, L, D]`.
  """

  def forward(
    self,
    queries: Array,
    part: Part,
    where: Places,
    window: Array | None,
    scores: Scores,
    own: bool,
  ) -> tuple[Array, Array]:
    """Attends to a part.

    Args:
      queries: `[N, G, K, R, L, D]`.
      part: keys, values and positions.
      where: positions and segments `[N, G, L]` of the queries.
      window: int32 scalar; None for no window.
      scores: how scores are computed.
      own: whether the part is the last one.

    Returns:
      Averaged values `[N, G, K, R, L, D]` and log-sums `[N, G, K, R, L]`, float32. Queries
      that attend to nothing have the log-sum `MASKED` or less.
    """

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
    """Computes a part's share of the gradient.

    Args:
      queries: `[N, G, K, R, L, D]`.
      part: keys, values and positions.
      where: positions and segments `[N, G, L]` of the queries.
      window: int32 scalar; None for no window.
      scores: how scores are computed.
      own: whether the part is the last one.
      merged: averaged values and log-sums of all parts together.
      gradient: gradient of the averaged values, float32.

    Returns:
      Gradients of the queries, keys and values.
    """


@functools.partial(jax.custom_vjp, nondiff_argnums=(4, 5))
def attend(
  queries: Array,
  parts: tuple[Part, ...],
  where: Places,
  window: Array | None,
  scores: Scores,
  kernel: Kernel,
) -> tuple[Array, Array]:
  """Attends to all parts with one softmax.

  Args:
    queries: `[N, G, L, K, R, D]`, `R` queries for each key head.
    parts: keys, values and positions.
    where: positions and segments `[N, G, L]` of the queries; with segments there is one
      part, whose keys have the same.
    window: int32 scalar; None for no window.
    scores: how scores are computed.
    kernel: what attends to each part.

  Returns:
    Averaged values `[N, G, L, K, R, D]` and log-sums of the exponentiated scores
    `[N, G, L, K, R]`, both float32; the log-sums have no gradient.
  """
  outputs, _ = _forward(queries, parts, where, window, scores, kernel)
  return outputs


def _forward(queries, parts, where, window, scores, kernel):
  inside = jnp.moveaxis(queries, 2, 4)
  results = [
    kernel.forward(inside, part, where, window, scores, part is parts[-1]) for part in parts
  ]
  mixed, log_sum = functools.reduce(merge, results)
  outputs = jnp.moveaxis(mixed, 4, 2), jnp.moveaxis(log_sum, 4, 2)
  return outputs, (queries, parts, where, window, outputs)


def _backward(scores, kernel, saved, cotangents):
  queries, parts, where, window, outputs = saved
  gradient, *merged = (jnp.moveaxis(x, 2, 4) for x in (cotangents[0], *outputs))
  inside, total, of_parts = jnp.moveaxis(queries, 2, 4), 0.0, []
  for part in parts:
    of_queries, of_keys, of_values = kernel.backward(
      inside, part, where, window, scores, part is parts[-1], tuple(merged), gradient
    )
    total += of_queries.astype(jnp.float32)
    of_parts.append(
      Part(of_keys.astype(part.keys.dtype), of_values.astype(part.values.dtype), None)
    )
  return jnp.moveaxis(total, 4, 2).astype(queries.dtype), tuple(of_parts), None, None


attend.defvjp(_forward, _backward)


def merge(one: tuple[Array, Array], other: tuple[Array, Array]) -> tuple[Array, Array]:
  """Merges averages and log-sums of two parts into those of one softmax.

  Args:
    one: averaged values `[..., D]` and log-sums `[...]` of a part, float32.
    other: those of the other part.

  Returns:
    Averaged values and log-sums of both.
  """
  log_sum = jnp.logaddexp(one[1], other[1])
  weights = [jnp.exp(x[1] - log_sum)[..., None] for x in (one, other)]
  return one[0] * weights[0] + other[0] * weights[1], log_sum
