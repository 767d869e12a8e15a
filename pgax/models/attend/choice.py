"""Chooses how attention is computed."""

import jax

from pgax.models.attend import blockwise, einsum
from pgax.models.attend.parts import Part, Places, Scores
from pgax.types import Array

# From so many queries on, blocks are taken. On CPUs forward and backward pass together take
# 0.75 of the time at 64 queries, 0.6 to 0.85 at 128 and 0.33 at 2,048, and compiling takes
# 1.4 times as long. Elsewhere it has not been measured, and blocks are taken for their
# memory.
_MANY = {"cpu": 64}
_MANY_ELSEWHERE = 512


def attend(
  queries: Array,
  parts: tuple[Part, ...],
  where: Places,
  window: Array | None,
  scores: Scores,
  backend: str = "auto",
) -> tuple[Array, Array]:
  """Attends to all parts with one exact softmax.

  `einsum` holds all scores at once, `blockwise` those of a block. `auto` takes `einsum` for
  few queries, as in decoding, and `blockwise` for many.

  Args:
    queries: `[N, G, L, K, R, D]`, `R` queries for each key head.
    parts: keys, values and positions; `N * G` rows share a prefix by having its part with
      `G` of 1.
    where: positions and segments `[N, G, L]` of the queries; with segments there is one
      part, whose keys have the same.
    window: int32 scalar; None for no window.
    scores: how scores are computed.
    backend: `einsum`, `blockwise`, or `auto`.

  Returns:
    Averaged values `[N, G, L, K, R, D]` and log-sums of the exponentiated scores
    `[N, G, L, K, R]`, both float32. Only the first has a gradient. What padding gets is
    finite and means nothing.
  """
  if backend == "auto":
    many = _MANY.get(jax.default_backend(), _MANY_ELSEWHERE)
    backend = "blockwise" if queries.shape[2] >= many else "einsum"
  if backend == "blockwise":
    return blockwise.attend(queries, parts, where, window, scores)
  # The backward pass computes scores again: they are the largest arrays by far, and
  # writing them for every layer of the scan takes longer than multiplying again.
  recomputed = jax.checkpoint(einsum.attend, prevent_cse=False, static_argnums=4)
  mixed, log_sum = recomputed(queries, parts, where, window, scores)
  return mixed, jax.lax.stop_gradient(log_sum)
