"""Chooses how attention is computed."""

import jax

from pgax.models.attend import blockwise, einsum
from pgax.models.attend.parts import Part, Places, Scores
from pgax.types import Array

_FEW = 256  # up to so many queries, all scores at once are faster


def attend(
  queries: Array,
  parts: tuple[Part, ...],
  where: Places,
  window: Array | None,
  scores: Scores,
  backend: str = "auto",
) -> tuple[Array, Array]:
  """Attends to all parts with one exact softmax.

  `einsum` holds all scores at once, and `blockwise` those of a block. By default the first
  is taken for few queries, as in decoding, and the second for many.

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
    backend = "einsum" if queries.shape[2] <= _FEW else "blockwise"
  if backend == "blockwise":
    return blockwise.attend(queries, parts, where, window, scores)
  # The backward pass computes scores again: they are the largest arrays by far, and
  # writing them for every layer of the scan takes longer than multiplying again.
  recomputed = jax.checkpoint(einsum.attend, prevent_cse=False, static_argnums=4)
  mixed, log_sum = recomputed(queries, parts, where, window, scores)
  return mixed, jax.lax.stop_gradient(log_sum)
