"""Sharding rules: logical axis names to mesh axes, for parameters and batches."""

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from pgax.models.block import LAYERS
from pgax.models.decoder import Decoder
from pgax.models.heads import ScalarDecoder
from pgax.models.parameters import init_params
from pgax.types import PyTree

# Logical axis of a parameter -> mesh axis. Axes without a mesh axis are replicated.
RULES = (
  (LAYERS, None),
  ("vocab", "model"),
  ("embed", "fsdp"),
  ("heads", "model"),
  ("kv_heads", "model"),
  ("mlp", "model"),
  # Each device has a part of every expert: a token may need any of them.
  ("experts", None),
  ("head", None),
  ("norm", None),
)


def param_shardings(model: Decoder | ScalarDecoder, mesh: Mesh) -> PyTree:
  """Looks up the sharding of every parameter in the rule table.

  Args:
    model: a decoder, with or without a scalar head.
    mesh: mesh with axes `data`, `fsdp` and `model`.

  Returns:
    A pytree of `NamedSharding` with the structure of the parameters.

  Raises:
    ValueError: if a mesh axis does not divide a parameter's axis; the message names the
      parameter, its shape and the mesh.
  """
  tokens = jax.ShapeDtypeStruct((1, 1, 1), jnp.int32)
  boxed = jax.eval_shape(model.init, jax.random.key(0), tokens, tokens)
  specs = nn.get_partition_spec(boxed)
  shardings = nn.logical_to_mesh_sharding(specs, mesh, RULES)
  shapes = jax.tree_util.tree_leaves_with_path(nn.unbox(boxed))
  for (path, leaf), sharding in zip(shapes, jax.tree.leaves(shardings), strict=True):
    try:
      sharding.shard_shape(leaf.shape)
    except ValueError:
      raise ValueError(
        f"parameter {jax.tree_util.keystr(path)} of shape {leaf.shape} can't be sharded by "
        f"{sharding.spec}: the mesh {dict(mesh.shape)} must divide it"
      ) from None
  return shardings


def abstract_params(model: Decoder | ScalarDecoder, mesh: Mesh) -> PyTree:
  """Returns shapes and shardings of the parameters without computing anything.

  Args:
    model: a decoder, with or without a scalar head.
    mesh: mesh of devices.

  Returns:
    A pytree of `jax.ShapeDtypeStruct` with shardings.
  """
  shapes = jax.eval_shape(lambda: init_params(model, jax.random.key(0)))
  return placed(shapes, param_shardings(model, mesh))


def batch_sharding(mesh: Mesh) -> NamedSharding:
  """Shards axis 0, the prompts, over `data` and `fsdp`; a group stays on one device."""
  return NamedSharding(mesh, PartitionSpec(("data", "fsdp")))


def batch_shards(mesh: Mesh) -> int:
  """Returns the number of shards that `batch_sharding` splits the prompts into."""
  return mesh.shape["data"] * mesh.shape["fsdp"]


def replicated(mesh: Mesh) -> NamedSharding:
  """Keeps a copy on every device."""
  return NamedSharding(mesh, PartitionSpec())


def placed(shapes: PyTree, shardings: PyTree) -> PyTree:
  """Attaches shardings to shapes.

  Args:
    shapes: pytree of `jax.ShapeDtypeStruct`s.
    shardings: pytree of shardings with the same structure.

  Returns:
    A pytree of `jax.ShapeDtypeStruct`s with shardings.
  """
  return jax.tree.map(
    lambda x, sharding: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding),
    shapes,
    shardings,
  )


def shardings_of(tree: PyTree) -> PyTree:
  """Returns the sharding of every leaf; the leaves may be arrays or shapes."""
  return jax.tree.map(lambda x: x.sharding, tree)
