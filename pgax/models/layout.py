"""Placement of a model's arrays on a mesh of devices, by the names of their axes."""

import dataclasses
import math
from collections.abc import Sequence

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from pgax.types import Array

BATCH = "batch"  # the axis of rows, which takes the devices that no other axis needs


@dataclasses.dataclass(frozen=True)
class Layout:
  """A mesh, and the mesh axes that logical axes are sharded over.

  A module names the axes of its parameters and activations; a layout decides what becomes
  of them. An axis that does not divide over all its mesh axes takes the last of them that
  it divides over, and is replicated over the others. Of two axes that want the same mesh
  axis the first has it, and `BATCH` comes last.

  Attributes:
    mesh: mesh of devices.
    rules: for each logical axis the mesh axes that it is sharded over.
  """

  mesh: Mesh
  rules: tuple[tuple[str, tuple[str, ...]], ...]

  def spec(self, names: Sequence[str | None], shape: Sequence[int]) -> PartitionSpec:
    """Returns how an array is sharded.

    Args:
      names: logical name of each axis; None for one that is not sharded.
      shape: shape of the array, of which `names` may leave out the last axes.

    Returns:
      A `PartitionSpec` with an entry for each name.

    Raises:
      KeyError: if the layout does not know a name.
    """
    rules, taken = dict(self.rules), set()
    spec = [None] * len(names)
    for i in sorted(range(len(names)), key=lambda i: names[i] == BATCH):
      axes = () if names[i] is None else rules[names[i]]
      axes = tuple(axis for axis in axes if axis not in taken)
      while axes and shape[i] % self.size(axes):
        axes = axes[1:]
      taken.update(axes)
      spec[i] = axes if len(axes) > 1 else axes[0] if axes else None
    return PartitionSpec(*spec)

  def sharding(self, names: Sequence[str | None], shape: Sequence[int]) -> NamedSharding:
    """Returns `spec` as a sharding."""
    return NamedSharding(self.mesh, self.spec(names, shape))

  def size(self, axes: Sequence[str]) -> int:
    """Returns the number of parts that mesh axes divide an axis into."""
    return math.prod(self.mesh.shape[axis] for axis in axes)

  def parts(self, name: str) -> int:
    """Returns the number of parts of a logical axis, given that it divides."""
    return self.size(dict(self.rules)[name])


def constrain(layout: Layout | None, x: Array, *names: str | None) -> Array:
  """Shards an activation, and its gradient, by a layout.

  Args:
    layout: the layout; None leaves everything to the compiler.
    x: the activation.
    *names: logical name of each axis; the last ones may be left out.

  Returns:
    The activation.
  """
  if layout is None:
    return x
  return jax.lax.with_sharding_constraint(x, layout.sharding(names, x.shape))


def platform(layout: Layout | None) -> str:
  """Returns the platform that a program is compiled for: `cpu`, `gpu` or `tpu`."""
  return layout.mesh.devices.flat[0].platform if layout else jax.default_backend()
