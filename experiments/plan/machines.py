"""Devices by name: their number, and the memory and speed of each."""

import dataclasses
import math
import re
from collections.abc import Sequence

import jax
from jax.sharding import AbstractMesh, AxisType, Mesh

from pgax.distributed.mesh import MeshConfig
from pgax.errors import UserError

_GIB = 2**30
_MOST_DEVICES = 2**20  # more than any machine has


@dataclasses.dataclass(frozen=True)
class Kind:
  """A kind of device.

  Attributes:
    platform: `tpu`, `gpu` or `cpu`.
    memory: bytes that a program can use; None if that depends on the machine.
    flops: bfloat16 operations per second; None if that depends on the machine.
  """

  platform: str
  memory: float | None
  flops: float | None


# Memory of v5e is what its compiler allows; that of others is the vendor's figure.
KINDS = {
  "v4": Kind("tpu", 32 * _GIB, 275e12),
  "v5e": Kind("tpu", 15.75 * _GIB, 197e12),
  "v5p": Kind("tpu", 95 * _GIB, 459e12),
  "v6e": Kind("tpu", 32 * _GIB, 918e12),
  "a100": Kind("gpu", 80e9, 312e12),
  "h100": Kind("gpu", 80e9, 989e12),
  "h200": Kind("gpu", 141e9, 989e12),
  "cpu": Kind("cpu", None, None),
}
_TOPOLOGY = re.compile(r"(\w+):(\d+(?:x\d+)*)")


@dataclasses.dataclass(frozen=True)
class Machine:
  """Devices of one kind.

  Attributes:
    name: such as `v5e:4x4`, `h100:8` or `cpu:8`.
    kind: capabilities of each device.
    count: number of devices.
  """

  name: str
  kind: Kind
  count: int

  def abstract_mesh(self, config: MeshConfig) -> AbstractMesh:
    """Returns the mesh that a run would have, without devices.

    Raises:
      UserError: if the mesh is not the number of devices.
    """
    fsdp, model = config.fsdp, config.model
    if fsdp < 1 or model < 1 or self.count % (fsdp * model):
      raise UserError(
        f"mesh.fsdp is {fsdp} and mesh.model is {model}; their product must divide the "
        f"number of devices, which is {self.count} for {self.name}"
      )
    shape = (self.count // (fsdp * model), fsdp, model)
    return AbstractMesh(
      shape, ("data", "fsdp", "model"), axis_types=(AxisType.Auto,) * len(shape)
    )

  def mesh(self, config: MeshConfig) -> Mesh:
    """Returns the mesh of devices that programs are compiled for.

    Raises:
      UserError: if there are no such devices to compile for.
    """
    shape = self.abstract_mesh(config).axis_sizes
    return jax.make_mesh(
      shape,
      ("data", "fsdp", "model"),
      axis_types=(AxisType.Auto,) * len(shape),
      devices=self._devices(),
    )

  def _devices(self) -> Sequence[jax.Device]:
    if self.kind.platform == "tpu":
      return _topology(self.name)
    devices = jax.devices()
    if devices[0].platform != self.kind.platform or len(devices) < self.count:
      raise UserError(
        f"--topology is {self.name}, and this machine has {len(devices)} devices of "
        f"platform {devices[0].platform}; leave out --compile"
      )
    return devices[: self.count]


def machine(name: str) -> Machine:
  """Returns the devices of a topology.

  Args:
    name: a kind and a number of devices: `v5e:4x4`, `h100:8`, `cpu:8`.

  Returns:
    A `Machine`.

  Raises:
    UserError: if there is no such kind, or the number is 0 or beyond all machines.
  """
  match = _TOPOLOGY.fullmatch(name)
  if not match or match[1] not in KINDS:
    raise UserError(
      f"--topology is {name!r}; it must be a kind of device and their number, such as "
      f"v5e:4x4 or h100:8. Kinds are {', '.join(KINDS)}"
    )
  count = math.prod(map(int, match[2].split("x")))
  if not count:
    raise UserError(f"--topology is {name!r}; it must have at least one device")
  if count > _MOST_DEVICES:
    raise UserError(f"--topology is {name!r}; it must have at most {_MOST_DEVICES} devices")
  return Machine(name, KINDS[match[1]], count)


def _topology(name: str) -> Sequence[jax.Device]:
  """Returns the devices of a TPU topology, which libtpu can compile for anywhere."""
  from jax.experimental import topologies

  try:
    import libtpu  # noqa: F401
  except ImportError:
    raise UserError(
      "--compile for TPUs needs libtpu; install it with pip install 'pgax[tpu]'"
    ) from None
  try:
    return topologies.get_topology_desc(platform="tpu", topology_name=name).devices
  except Exception as error:  # libtpu's messages are of many types
    raise UserError(f"--topology is {name!r}, which libtpu rejects: {error}") from error
