"""A checkpoint directory of transformers, read tensor by tensor to where it will lie."""

import functools
import itertools
import math
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec, Sharding

from pgax.models.config import DecoderConfig
from pgax.models.hf.config import from_hf
from pgax.models.hf.files import (
  CONFIG,
  GENERATION,
  Checkpoint,
  open_checkpoint,
  read_json,
)
from pgax.models.hf.names import EMBEDDING, UNEMBEDDING, Tensor, tensors
from pgax.types import Array, PyTree

# Constants that older files keep among the weights.
_IGNORED = ("rotary_emb.inv_freq",)
_DTYPES = ("F64", "F32", "F16", "BF16")


def load_config(path: Path) -> DecoderConfig:
  """The decoder that a checkpoint directory is for.

  Args:
    path: of the directory, with `config.json`.

  Returns:
    A `DecoderConfig` that computes in float32; `dataclasses.replace` changes `dtype` and
    `remat`.

  Raises:
    ValueError: if the file can't be read, or describes another kind of model; it names the
      file and what is not known.
  """
  path = Path(path) / CONFIG
  try:
    return from_hf(read_json(path))
  except ValueError as error:
    raise error if str(path) in str(error) else ValueError(f"{path}: {error}") from None


def eos_ids(path: Path) -> tuple[int, ...]:
  """Tokens that end a completion, by `generation_config.json`, or else by `config.json`."""
  for name in (GENERATION, CONFIG):
    if (Path(path) / name).is_file():
      found = read_json(Path(path) / name).get("eos_token_id")
      if found is not None:
        return tuple(found) if isinstance(found, list) else (found,)
  return ()


def saved_dtype(path: Path) -> str:
  """The dtype that the weights of a checkpoint directory are said to have."""
  raw = read_json(Path(path) / CONFIG)
  return raw.get("dtype") or raw.get("torch_dtype") or "float32"


def check(path: Path, config: DecoderConfig) -> None:
  """Makes sure that `load_params` will work, by names and shapes alone.

  Args:
    path: of the directory.
    config: of the decoder.

  Raises:
    ValueError: as `load_params` does.
  """
  check_tensors(open_checkpoint(Path(path)), tensors(config), config)


def load_params(
  path: Path, config: DecoderConfig, shardings: PyTree, dtype: jnp.dtype = jnp.float32
) -> PyTree:
  """The parameters of a checkpoint directory.

  One tensor at a time is on the host; from there it goes straight to its devices, and into
  its place among the stacked layers.

  Args:
    path: of the directory, with `model.safetensors` or its parts.
    config: of the decoder, from `load_config`.
    shardings: of the parameters, from `partitioning.param_shardings`.
    dtype: of the parameters.

  Returns:
    Parameters of a `Decoder`, the structure of `shardings`.

  Raises:
    ValueError: if a tensor is missing or surplus, has another shape than the configuration
      asks for, or is quantised; it names it. This is found before any is read.
  """
  checkpoint, wanted = open_checkpoint(Path(path)), tensors(config)
  check_tensors(checkpoint, wanted, config)
  return {"params": read_tensors(checkpoint, wanted, shardings["params"], dtype)}


def read_tensors(
  checkpoint: Checkpoint, wanted: list[Tensor], shardings: PyTree, dtype: jnp.dtype
) -> PyTree:
  """Parameters of the tensors that `check_tensors` has found to be there.

  Args:
    checkpoint: to read from.
    wanted: the tensors; those of a stacked parameter follow each other.
    shardings: of the parameters, by their paths; others may be among them.
    dtype: of the parameters.

  Returns:
    A nested mapping by the paths of the tensors.
  """
  params = {}
  for keys, group in itertools.groupby(wanted, key=lambda tensor: tensor.path):
    sharding = functools.reduce(lambda tree, key: tree[key], keys, shardings)
    *inner, last = keys
    node = functools.reduce(lambda tree, key: tree.setdefault(key, {}), inner, params)
    node[last] = _parameter(checkpoint, list(group), sharding, dtype)
  return params


def check_tensors(
  checkpoint: Checkpoint, wanted: list[Tensor], config: DecoderConfig
) -> None:
  """Makes sure that a checkpoint has the wanted tensors and no others.

  Raises:
    ValueError: as `load_params` does.
  """
  folder, shapes = checkpoint.folder, checkpoint.shapes
  for tensor in wanted:
    if tensor.name not in shapes:
      raise ValueError(f"tensor {tensor.name} is missing in {folder}")
    if shapes[tensor.name] != tensor.file_shape:
      raise ValueError(
        f"tensor {tensor.name} in {folder} has shape {shapes[tensor.name]}; the "
        f"configuration asks for {tensor.file_shape}"
      )
    dtype = checkpoint.dtypes[tensor.name]
    if dtype not in _DTYPES:
      known = ", ".join(_DTYPES)
      raise ValueError(f"tensor {tensor.name} in {folder} is {dtype}; known are {known}")
  for name in sorted(shapes.keys() - {tensor.name for tensor in wanted}):
    if name == UNEMBEDDING and config.tie_embeddings:
      # Some checkpoints save tied embeddings twice, which is fine if they are the same.
      if not np.array_equal(checkpoint.read(name), checkpoint.read(EMBEDDING)):
        raise ValueError(
          f"tensor {name} in {folder} differs from {EMBEDDING}, but embeddings are tied"
        )
    elif not name.endswith(_IGNORED):
      raise ValueError(f"tensor {name} in {folder} is surplus: no parameter is made of it")


def _parameter(
  checkpoint: Checkpoint, group: list[Tensor], sharding: Sharding, dtype: jnp.dtype
) -> Array:
  """One parameter, of one tensor or of one for each layer."""
  if group[0].layer is None:
    return _place(checkpoint, group[0], sharding, dtype)
  shape = (len(group), *group[0].shape)
  stacked = jax.jit(lambda: jnp.zeros(shape, dtype), out_shardings=sharding)()
  put = jax.jit(
    lambda stacked, layer, i: stacked.at[i].set(layer),
    donate_argnums=0,
    out_shardings=sharding,
  )
  for tensor in group:
    layer = _place(checkpoint, tensor, _without_layers(sharding), dtype)
    stacked = put(stacked, layer, tensor.layer)
  return stacked


def _without_layers(sharding: Sharding) -> Sharding:
  if isinstance(sharding, NamedSharding):
    return NamedSharding(sharding.mesh, PartitionSpec(*sharding.spec[1:]))
  return sharding  # of a single device, whatever the shape


def _place(
  checkpoint: Checkpoint, tensor: Tensor, sharding: Sharding, dtype: jnp.dtype
) -> Array:
  value = tensor.from_file(checkpoint.read(tensor.name))
  assert value.size == math.prod(tensor.shape)
  placed = jax.make_array_from_callback(tensor.shape, sharding, lambda at: value[at])
  return placed.astype(dtype)  # on the devices: the host holds the file's dtype only
