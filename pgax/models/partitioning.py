"""Logical axis names to mesh axes: where every parameter and every batch lies."""

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from pgax.models.decoder import LAYERS, Decoder
from pgax.models.heads import Critic
from pgax.types import PyTree

# Logical axis of a parameter -> mesh axis. What is not named is replicated.
RULES = (
  (LAYERS, None),
  ("vocab", "model"),
  ("embed", "fsdp"),
  ("heads", "model"),
  ("kv_heads", "model"),
  ("mlp", "model"),
  ("head", None),
  ("norm", None),
)


def param_shardings(model: Decoder | Critic, mesh: Mesh) -> PyTree:
  """The sharding of every parameter, by the rule table.

  Args:
    model: the decoder, or the critic.
    mesh: with axes `data`, `fsdp` and `model`.

  Returns:
    A pytree of `NamedSharding`, the structure of the parameters.

  Raises:
    ValueError: if a mesh axis does not divide the axis that is laid over it; it names the
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
        f"parameter {jax.tree_util.keystr(path)} of shape {leaf.shape} can't be laid over "
        f"{sharding.spec}: the mesh {dict(mesh.shape)} must divide it"
      ) from None
  return shardings


def init_params(model: Decoder | Critic, key: jax.Array) -> PyTree:
  """Fresh parameters, as plain arrays.

  Args:
    model: the decoder, or the critic.
    key: random key.

  Returns:
    A pytree of arrays, the structure of `param_shardings`.
  """
  tokens = jnp.zeros((1, 1, 1), jnp.int32)
  return nn.unbox(model.init(key, tokens, tokens))


def abstract_params(model: Decoder | Critic, mesh: Mesh) -> PyTree:
  """Shapes of the parameters and where they lie, nothing computed.

  Args:
    model: the decoder, or the critic.
    mesh: of the devices.

  Returns:
    A pytree of `jax.ShapeDtypeStruct` with shardings.
  """
  return jax.tree.map(
    lambda x, sharding: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding),
    jax.eval_shape(lambda: init_params(model, jax.random.key(0))),
    param_shardings(model, mesh),
  )


def batch_sharding(mesh: Mesh) -> NamedSharding:
  """Axis 0, the prompts, over the axes `data` and `fsdp`; a group stays on one device."""
  return NamedSharding(mesh, PartitionSpec(("data", "fsdp")))


def batch_shards(mesh: Mesh) -> int:
  """Number of parts that `batch_sharding` cuts the prompts into."""
  return mesh.shape["data"] * mesh.shape["fsdp"]


def replicated(mesh: Mesh) -> NamedSharding:
  """The same on every device."""
  return NamedSharding(mesh, PartitionSpec())
