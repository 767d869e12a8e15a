"""Kernels on a mesh: compilers can't divide them, so each device calls them on its rows."""

import dataclasses
import functools

import jax
from jax.sharding import PartitionSpec as P

from pgax.models.attend.merged import Kernel
from pgax.models.attend.parts import Part, Places, Scores
from pgax.models.layout import BATCH, Layout
from pgax.types import Array


@dataclasses.dataclass(frozen=True)
class Sharded:
  """A kernel on a mesh, divided by rows and key heads; see `merged.Kernel`.

  Attention of one row and key head needs no other, so nothing is communicated. An axis that
  the mesh does not divide is computed by all devices.

  Attributes:
    kernel: kernel that each device calls.
    layout: where rows and key heads are.
  """

  kernel: Kernel
  layout: Layout

  def forward(
    self,
    queries: Array,
    part: Part,
    where: Places,
    window: Array | None,
    scores: Scores,
    own: bool,
  ) -> tuple[Array, Array]:
    """Attends to a part."""
    call = functools.partial(self.kernel.forward, scores=scores, own=own)
    rows, places = self._specs(queries)
    specs = self._inputs(rows, places, where, window)
    return self._map(lambda q, p, w, x: call(q, p, w, x), specs, (rows, rows))(
      queries, part, where, window
    )

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
    call = functools.partial(self.kernel.backward, scores=scores, own=own)
    rows, places = self._specs(queries)
    specs = (*self._inputs(rows, places, where, window), (rows, rows), rows)
    return self._map(
      lambda q, p, w, x, m, g: call(q, p, w, x, merged=m, gradient=g), specs, (rows,) * 3
    )(queries, part, where, window, merged, gradient)

  def _specs(self, queries: Array) -> tuple[P, P]:
    """Layouts of `[N, G, K, ...]` and of `[N, G, ...]`."""
    rows = self.layout.spec((BATCH, None, "attended_heads"), queries.shape)
    return rows, P(rows[0])

  def _inputs(self, rows, places, where, window):
    """Layouts of queries, part, places and window."""
    segments = None if where.segments is None else places
    return (
      rows,
      Part(rows, rows, places),
      Places(places, segments),
      None if window is None else P(),
    )

  def _map(self, function, inputs, outputs):
    mesh = self.layout.mesh
    return jax.shard_map(
      function, mesh=mesh, in_specs=inputs, out_specs=outputs, check_vma=False
    )


def on_mesh(kernel: Kernel, layout: Layout | None) -> Kernel:
  """Divides a kernel over the devices of a layout; None is one device."""
  return kernel if layout is None else Sharded(kernel, layout)
