"""Compiling attention for TPUs that are not there, by libtpu."""

import importlib.util
import os
import warnings
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import topologies
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from pgax.distributed.partitioning import training_layout
from pgax.models.attend import Part, Places, Scores, merged
from pgax.models.attend.flash import Flash
from pgax.models.attend.sharded import on_mesh

AVAILABLE = importlib.util.find_spec("libtpu") is not None
# No server to ask for this machine's place in a pod; several processes may compile.
os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")


ROWS, KEY_HEADS = 2, 2


class Case(NamedTuple):
  """Sizes of an attention, and what it needs."""

  group: int = 2
  repeats: int = 2
  length: int = 1024
  prompt: int = 200  # 0 for rows of several texts
  size: int = 64
  dtype: str = "bfloat16"
  window: bool = False
  softcap: float = 0.0
  devices: int = 1

  @property
  def parts(self):
    return 2 if self.prompt else 1

  @property
  def heads(self):
    return KEY_HEADS * self.repeats


CASES = (
  Case(repeats=7, devices=4),
  Case(length=1000, size=256, dtype="float32", window=True, softcap=50.0),
  Case(prompt=0, size=80, window=True),
)


def compile_gradient(case):
  """Compiles the gradient of attention for one or more chips of TPU v5e."""
  topology = topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x2")
  devices = np.asarray(topology.devices[: case.devices])
  devices = devices.reshape(-1, 1, min(2, case.devices))
  mesh = Mesh(devices, ("data", "fsdp", "model"), axis_types=(AxisType.Auto,) * 3)

  def array(*shape, dtype="int32"):
    sharding = NamedSharding(mesh, PartitionSpec(*["data"] * bool(shape)))
    return jax.ShapeDtypeStruct(shape, jnp.dtype(dtype), sharding=sharding)

  def loss(inputs, positions, window):
    queries, *pairs = inputs
    parts = [Part(*pair, at) for pair, at in zip(pairs, positions, strict=True)]
    where = Places(positions[-1], None if case.prompt else positions[-1])
    scores = Scores(case.size**-0.5, case.softcap)
    window = window if case.window else None
    kernel = on_mesh(Flash(), training_layout(mesh))
    mixed, _ = merged.attend(queries, tuple(parts), where, window, scores, kernel)
    return jnp.sum(mixed**2)

  places = [(ROWS, 1, case.prompt)] * bool(case.prompt) + [(ROWS, case.group, case.length)]
  queries = (ROWS, case.group, case.length, KEY_HEADS, case.repeats, case.size)
  inputs = [array(*queries, dtype=case.dtype)]
  for n, group, length in places:
    inputs.append((array(n, group, KEY_HEADS, length, case.size, dtype=case.dtype),) * 2)
  arguments = inputs, [array(*place) for place in places], array()
  with warnings.catch_warnings():
    # The compilation cache keeps these programs, but can't load them without a TPU.
    warnings.filterwarnings("ignore", "Error reading persistent compilation cache")
    return jax.jit(jax.grad(loss)).trace(*arguments).lower().compile()
