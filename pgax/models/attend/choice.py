"""Chooses how attention is computed."""

import jax

from pgax.errors import UserError
from pgax.models.attend import blockwise, cudnn, einsum, merged
from pgax.models.attend.flash import Flash
from pgax.models.attend.parts import Part, Places, Scores
from pgax.models.attend.sharded import on_mesh
from pgax.models.layout import Layout, platform
from pgax.types import Array

# From so many queries on, blocks or kernels are taken. On CPUs forward and backward pass of
# blocks together take 0.75 of the time at 64 queries, 0.6 to 0.85 at 128 and 0.33 at 2,048,
# and compiling takes 1.4 times as long. Elsewhere it has not been measured, and they are
# taken for their memory.
_MANY = {"cpu": 64}
_MANY_ELSEWHERE = 512


def attend(
  queries: Array,
  parts: tuple[Part, ...],
  where: Places,
  window: Array | None,
  scores: Scores,
  backend: str = "auto",
  layout: Layout | None = None,
) -> tuple[Array, Array]:
  """Attends to all parts with one exact softmax.

  `einsum` holds all scores at once, `blockwise` those of a block, `pallas` (TPUs) and
  `cudnn` (NVIDIA GPUs) none outside the chip. `auto` takes `einsum` for few queries, as in
  decoding; for many the kernels of the device if they can compute it, else `blockwise`.
  `pallas` and `cudnn` are for reading tokens: one query at a time takes `einsum`, and
  `cudnn` leaves queries that attend to slots of a cache to `auto`.

  Args:
    queries: `[N, G, L, K, R, D]`, `R` queries for each key head.
    parts: keys, values and positions; `N * G` rows share a prefix by having its part with
      `G` of 1. If the positions of the last part are the very array `where.positions`, its
      keys are those of the queries' own tokens, and other parts come before all of them.
    where: positions and segments `[N, G, L]` of the queries; with segments there is one
      part, whose keys have the same.
    window: int32 scalar; None for no window.
    scores: how scores are computed.
    backend: `einsum`, `blockwise`, `pallas`, `cudnn`, or `auto`.
    layout: where rows and key heads are on a mesh, for kernels; None for one device.

  Returns:
    Averaged values `[N, G, L, K, R, D]` and log-sums of the exponentiated scores
    `[N, G, L, K, R]`, both float32. Only the first has a gradient. What padding gets is
    finite and means nothing.

  Raises:
    UserError: if the backend can't compute it.
  """
  backend = _choose(queries, parts, where, window, scores, backend, platform(layout))
  if backend == "blockwise":
    return blockwise.attend(queries, parts, where, window, scores)
  if backend in KERNELS:
    kernel = on_mesh(KERNELS[backend], layout)
    return merged.attend(queries, parts, where, window, scores, kernel)
  # The backward pass computes scores again: they are the largest arrays by far, and
  # writing them for every layer of the scan takes longer than multiplying again.
  recomputed = jax.checkpoint(einsum.attend, prevent_cse=False, static_argnums=4)
  mixed, log_sum = recomputed(queries, parts, where, window, scores)
  return mixed, jax.lax.stop_gradient(log_sum)


KERNELS = {"pallas": Flash(), "cudnn": cudnn.Cudnn()}


def _choose(queries, parts, where, window, scores, backend, device):
  """Returns the backend to take; never `auto`."""
  if backend in KERNELS and queries.shape[2] == 1:
    return "einsum"
  own = parts[-1].positions is where.positions
  if backend == "cudnn" and own:
    refusal = cudnn.refusal(queries, window, where, scores)
    if refusal:
      raise UserError(
        f"model.attention is 'cudnn', which can't compute this model: {refusal}. Use "
        "'auto', 'blockwise' or 'einsum'"
      )
  elif backend in ("auto", "cudnn"):
    return _automatic(queries, own, where, window, scores, device)
  return backend


def _automatic(queries, own, where, window, scores, device):
  """Returns the backend for the device and the number of queries."""
  if queries.shape[2] < _MANY.get(device, _MANY_ELSEWHERE):
    return "einsum"
  if device == "tpu":
    return "pallas"
  if device == "gpu" and own and not cudnn.refusal(queries, window, where, scores):
    return "cudnn"
  return "blockwise"
