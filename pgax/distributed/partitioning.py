"""Sharding rules: logical axis names to mesh axes, for parameters and batches."""

import math

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from pgax.models.block import LAYERS
from pgax.models.decoder import Decoder
from pgax.models.heads import ScalarDecoder
from pgax.models.layout import BATCH, Layout
from pgax.models.parameters import init_params
from pgax.types import PyTree

# Logical axis -> mesh axes, in a training step and while completions are sampled, for
# parameters and activations: `embed` is an axis of parameters alone, the residual stream
# is sharded by rows. Every device has a part of each expert: a token may need any of them.
_NEVER_SHARDED = ((LAYERS, ()), ("experts", ()), ("head", ()), ("norm", ()))
_TRAINING = (
  (BATCH, ("data", "fsdp")),
  ("vocab", ("model",)),
  ("vocab_of_rows", ("model",)),
  ("embed", ("fsdp",)),
  ("heads", ("model",)),
  ("kv_heads", ("model",)),
  ("attended_heads", ("model",)),
  ("mlp", ("model",)),
  *_NEVER_SHARDED,
)
# No token collects parameters: every device has all rows of its columns.
_DECODING = (
  (BATCH, ("data", "fsdp")),
  ("vocab", ("fsdp", "model")),
  ("vocab_of_rows", ("model",)),
  ("embed", ()),
  ("heads", ("fsdp", "model")),
  ("kv_heads", ("fsdp", "model")),
  ("attended_heads", ("model",)),
  ("mlp", ("fsdp", "model")),
  *_NEVER_SHARDED,
)

# What a logical axis of a parameter counts, for messages.
_MEANINGS = {
  "vocab": "the number of tokens, model.vocab_size,",
  "embed": "the width, model.embed_dim,",
  "heads": "the number of heads, model.num_heads,",
  "kv_heads": "the number of key heads, model.num_kv_heads,",
  "mlp": "the feed-forward width, model.mlp_dim,",
}


def training_layout(mesh: Mesh) -> Layout | None:
  """Returns where arrays are in a training step; None on a single device."""
  return Layout(mesh, _TRAINING) if mesh.size > 1 else None


def decoding_layout(mesh: Mesh) -> Layout | None:
  """Returns where arrays are while completions are sampled; None on a single device."""
  return Layout(mesh, _DECODING) if mesh.size > 1 else None


def param_shardings(model: Decoder | ScalarDecoder, mesh: Mesh) -> PyTree:
  """Looks up the sharding of every parameter in the table of training.

  Args:
    model: a decoder, with or without a scalar head.
    mesh: mesh with axes `data`, `fsdp` and `model`.

  Returns:
    A pytree of `NamedSharding` with the structure of the parameters. An axis that the mesh
    does not divide is replicated; see `undivided`.
  """
  return _shardings(model, Layout(mesh, _TRAINING))


def decoding_shardings(model: Decoder | ScalarDecoder, mesh: Mesh) -> PyTree:
  """Looks up the sharding of every parameter in the table of decoding."""
  return _shardings(model, Layout(mesh, _DECODING))


def _shardings(model: Decoder | ScalarDecoder, layout: Layout) -> PyTree:
  def sharding(spec: PartitionSpec, leaf: jax.ShapeDtypeStruct) -> NamedSharding:
    return layout.sharding(spec, leaf.shape)

  specs, shapes = _logical_axes(model)
  return jax.tree.map(sharding, specs, shapes)


def _logical_axes(model: Decoder | ScalarDecoder) -> tuple[PyTree, PyTree]:
  """Names of the axes of every parameter, as a `PartitionSpec`, and the shapes."""
  tokens = jax.ShapeDtypeStruct((1, 1, 1), jnp.int32)
  boxed = jax.eval_shape(model.init, jax.random.key(0), tokens, tokens)
  return nn.get_partition_spec(boxed), nn.unbox(boxed)


def undivided(model: Decoder | ScalarDecoder, mesh: Mesh) -> list[str]:
  """Lists the axes of parameters that the mesh does not divide.

  Args:
    model: a decoder, with or without a scalar head.
    mesh: mesh with axes `data`, `fsdp` and `model`.

  Returns:
    A sentence for each, with the sizes.
  """
  rules, sentences = dict(_TRAINING), {}
  specs, shapes = _logical_axes(model)
  for names, leaf in zip(jax.tree.leaves(specs), jax.tree.leaves(shapes), strict=True):
    for name, size in zip(names, leaf.shape, strict=True):
      for axis in rules[name] if name else ():
        if size % mesh.shape[axis]:
          sentences[name, size] = (
            f"{_MEANINGS[name]} is {size}, which mesh.{axis} = {mesh.shape[axis]} does not "
            "divide: every device has all of them"
          )
  return list(sentences.values())


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


def device_bytes(tree: PyTree, dtype: str | None = None) -> int:
  """Counts the bytes of a pytree on one device.

  Args:
    tree: pytree of arrays, or of shapes with shardings; random keys count nothing.
    dtype: dtype to count them in; None for their own.
  """

  def leaf_bytes(leaf: jax.ShapeDtypeStruct) -> int:
    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
      return 0
    itemsize = jnp.dtype(dtype or leaf.dtype).itemsize
    return math.prod(leaf.sharding.shard_shape(leaf.shape)) * itemsize

  return sum(map(leaf_bytes, jax.tree.leaves(tree)))


def shardings_of(tree: PyTree) -> PyTree:
  """Returns the sharding of every leaf; the leaves may be arrays or shapes."""
  return jax.tree.map(lambda x: x.sharding, tree)
