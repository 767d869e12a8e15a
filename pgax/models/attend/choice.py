"""Chooses how attention is computed."""

import functools
import logging

import jax

from pgax.errors import UserError
from pgax.models.attend import blockwise, einsum, kernel
from pgax.models.attend.parts import Part, ScoreScale, TokenPositions
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
  tokens: TokenPositions,
  window: Array | None,
  scale: ScoreScale,
  backend: str = "auto",
  layout: Layout | None = None,
) -> Array:
  """Attends to all parts with one exact softmax.

  `einsum` holds all scores at once, `blockwise` those of a block, and `kernel` none outside
  the chip. `auto` takes `einsum` for few queries, as in decoding. For many it takes the
  kernel of an accelerator if that can compute the attention and agrees with `einsum` on
  this device (see `kernel.disagreement`), and otherwise `blockwise`, with a warning.
  `kernel` is for reading tokens: one query at a time, and queries that attend to slots of a
  cache, are left to `auto`.

  Args:
    queries: `[N, G, L, K, R, D]`, `R` queries for each key head.
    parts: keys, values and positions; `N * G` rows share a prefix by having its part with
      `G` of 1. If the positions of the last part are the very array `tokens.positions`, its
      keys are those of the queries' own tokens, and other parts come before all of them.
    tokens: positions and segments `[N, G, L]` of the queries; with segments there is one
      part, whose keys have the same.
    window: int32 scalar; None for no window.
    scale: scale and cap of the scores.
    backend: `einsum`, `blockwise`, `kernel`, or `auto`.
    layout: where rows and key heads are on a mesh, for kernels; None for one device.

  Returns:
    Averaged values `[N, G, L, K, R, D]`, float32. Outputs at padding are finite but
    undefined.

  Raises:
    UserError: if the backend is `kernel` and can't be used.
  """
  backend = _choose(queries, parts, tokens, window, scale, backend, platform(layout))
  if backend == "blockwise":
    return blockwise.attend(queries, parts, tokens, window, scale)
  if backend == "kernel":
    chosen = kernel.KERNELS[platform(layout)]
    return kernel.attend(chosen, queries, parts, tokens.positions, scale.scale, layout)
  # The backward pass computes scores again: they are the largest arrays by far, and
  # writing them for every layer of the scan takes longer than multiplying again.
  recomputed = jax.checkpoint(einsum.attend, prevent_cse=False, static_argnums=4)
  return recomputed(queries, parts, tokens, window, scale)


def _choose(
  queries: Array,
  parts: tuple[Part, ...],
  tokens: TokenPositions,
  window: Array | None,
  scale: ScoreScale,
  backend: str,
  device: str,
) -> str:
  """Returns the backend to take: `einsum`, `blockwise` or `kernel`."""
  length, own = queries.shape[2], parts[-1].positions is tokens.positions
  if backend in ("einsum", "blockwise"):
    return backend
  if backend == "kernel" and own and length > 1:
    if reason := kernel.obstacle(device, queries, parts, tokens, window, scale):
      raise UserError(
        f"model.attention is 'kernel', which can't be used: {reason}. Use 'auto', "
        "'blockwise' or 'einsum'"
      )
    return "kernel"
  if length < _MANY.get(device, _MANY_ELSEWHERE):
    return "einsum"
  if device not in kernel.KERNELS or not own:
    return "blockwise"
  reason = kernel.obstacle(device, queries, parts, tokens, window, scale)
  if reason:
    warn(device, reason)
  return "blockwise" if reason else "kernel"


@functools.cache
def warn(device: str, reason: str) -> None:
  """Warns once of each reason."""
  logging.getLogger(__name__).warning(
    "attention is computed by model.attention='blockwise', not by a kernel of the %s: %s",
    device,
    reason,
  )
