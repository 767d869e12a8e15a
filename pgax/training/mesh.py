"""The mesh of devices."""

import jax
from jax.sharding import AxisType, Mesh

from pgax.training.errors import UserError


def make_mesh(fsdp: int = 1, model: int = 1) -> Mesh:
  """A mesh `(data, fsdp, model)` over all devices there are.

  Args:
    fsdp: number of devices that a parameter's `embed` axis is split over.
    model: number of devices that heads, feed-forward and vocabulary are split over.

  Returns:
    The mesh; what the two arguments leave is the `data` axis.

  Raises:
    UserError: if `fsdp * model` does not divide the number of devices.
  """
  count = jax.device_count()
  if fsdp < 1 or model < 1 or count % (fsdp * model):
    raise UserError(
      f"mesh.fsdp is {fsdp} and mesh.model is {model}; their product must divide the "
      f"number of devices, which is {count}"
    )
  shape = (count // (fsdp * model), fsdp, model)
  # Named because the default changes: Auto in jax 0.10, Explicit from 0.11 on.
  return jax.make_mesh(shape, ("data", "fsdp", "model"), axis_types=(AxisType.Auto,) * 3)
