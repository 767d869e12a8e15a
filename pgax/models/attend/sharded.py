"""Kernels on a mesh: compilers can't divide them, so each device calls them on its rows."""

import dataclasses
import functools
import math

import jax
from jax.sharding import AbstractMesh, AxisType
from jax.sharding import PartitionSpec as P

from pgax.models.attend.merged import Kernel
from pgax.models.attend.parts import Part, Places, Scores
from pgax.types import Array

_BATCH, _HEADS = ("data", "fsdp"), ("model",)


@dataclasses.dataclass(frozen=True)
class Sharded:
  """A kernel on a mesh, divided by rows and key heads; see `merged.Kernel`.

  Attention of one row and key head needs no other, so nothing is communicated. An axis that
  the mesh does not divide is computed by all devices.

  Attributes:
    kernel: kernel that each device calls.
    mesh: mesh of devices.
  """

  kernel: Kernel
  mesh: AbstractMesh

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
    batch = self._divides(queries.shape[0], _BATCH)
    return P(batch, None, self._divides(queries.shape[2], _HEADS)), P(batch)

  def _divides(self, size: int, names: tuple[str, ...]) -> tuple[str, ...] | None:
    """Mesh axes to divide an axis over; None if they don't divide it."""
    names = tuple(name for name in names if name in self.mesh.shape)
    count = math.prod(self.mesh.shape[name] for name in names)
    return names if names and size % count == 0 else None

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
    return jax.shard_map(
      function, mesh=self.mesh, in_specs=inputs, out_specs=outputs, check_vma=False
    )


def on_mesh(kernel: Kernel) -> Kernel:
  """Divides a kernel over the mesh of the context, if there is one."""
  mesh = current_mesh()
  return kernel if mesh is None else Sharded(kernel, mesh)


def current_mesh() -> AbstractMesh | None:
  """Returns the mesh of the context; None for one device, or inside a `shard_map`."""
  mesh = jax.sharding.get_abstract_mesh()
  if mesh.empty or mesh.size == 1 or AxisType.Manual in mesh.axis_types:
    return None
  return mesh
