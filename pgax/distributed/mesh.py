"""The mesh of devices."""

import dataclasses

import jax
from jax.sharding import AxisType, Mesh

from pgax.errors import UserError, check_at_least


@dataclasses.dataclass(frozen=True)
class MeshConfig:
  """Device layout; the devices that remain form the `data` axis.

  Attributes:
    fsdp: number of devices that a parameter's `embed` axis is split over.
    model: number of devices that heads, feed-forward and vocabulary are split over.
    peak_flops: floating-point operations per second that a device is capable of, for
      metrics; 0 takes those of known devices.
  """

  fsdp: int = 1
  model: int = 1
  peak_flops: float = 0.0

  def __post_init__(self):
    check_at_least(self, 0, "peak_flops")


def make_mesh(config: MeshConfig = MeshConfig()) -> Mesh:
  """Builds a mesh `(data, fsdp, model)` over all devices.

  Args:
    config: sizes of the axes `fsdp` and `model`.

  Returns:
    The mesh.

  Raises:
    UserError: if `fsdp * model` does not divide the number of devices.
  """
  count, fsdp, model = jax.device_count(), config.fsdp, config.model
  integers = isinstance(fsdp, int) and isinstance(model, int)
  if not integers or fsdp < 1 or model < 1 or count % (fsdp * model):
    raise UserError(
      f"mesh.fsdp is {fsdp} and mesh.model is {model}; their product must divide the "
      f"number of devices, which is {count}"
    )
  shape = (count // (fsdp * model), fsdp, model)
  # Named because the default changes: Auto in jax 0.10, Explicit from 0.11 on.
  return jax.make_mesh(shape, ("data", "fsdp", "model"), axis_types=(AxisType.Auto,) * 3)
