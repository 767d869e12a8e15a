"""Loads a checkpoint directory of transformers, tensor by tensor, onto its devices."""

import functools
import itertools
import math
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec, Sharding

from pgax.errors import UserError
from pgax.models.config import DecoderConfig
from pgax.models.hf.config import from_hf
from pgax.models.hf.families import find_family
from pgax.models.hf.files import CONFIG, GENERATION, Checkpoint, open_checkpoint, read_json
from pgax.models.hf.names import EMBEDDING, UNEMBEDDING, Tensor, stacked_axes, tensors
from pgax.models.hf.rope import rope_type
from pgax.types import Array, PyTree

# Constants that older files save among the weights.
_IGNORED = ("rotary_emb.inv_freq",)
_DTYPES = ("F64", "F32", "F16", "BF16")


def load_config(path: Path) -> DecoderConfig:
  """Loads the configuration of a checkpoint directory.

  Args:
    path: directory with `config.json`.

  Returns:
    A `DecoderConfig` that computes in float32; `dataclasses.replace` changes `dtype` and
    `remat`.

  Raises:
    ValueError: if the file can't be read, or the decoder does not support the model; the
      message names the file and the setting.
  """
  path = Path(path) / CONFIG
  try:
    return from_hf(read_json(path))
  except ValueError as error:
    raise error if str(path) in str(error) else ValueError(f"{path}: {error}") from None


def eos_ids(path: Path) -> tuple[int, ...]:
  """Reads the EOS ids of `generation_config.json`, or else of `config.json`."""
  for name in (GENERATION, CONFIG):
    if (Path(path) / name).is_file():
      ids = read_json(Path(path) / name).get("eos_token_id")
      if ids is None:
        continue
      ids = tuple(ids) if isinstance(ids, list) else (ids,)
      if not all(type(x) is int and x >= 0 for x in ids):
        raise ValueError(
          f"eos_token_id in {Path(path) / name} is {ids}; it must be a token id, or a list "
          "of them"
        )
      return ids
  return ()


def check_length(path: Path, tokens: int) -> None:
  """Checks that a model is made for texts of that length.

  Args:
    path: directory with `config.json`.
    tokens: number of tokens of the longest text.

  Raises:
    ValueError: if `max_position_embeddings` is smaller, or the length of training of a
      model with LongRoPE.
  """
  raw = read_json(Path(path) / CONFIG)
  key, allowed = "max_position_embeddings", raw.get("max_position_embeddings")
  for section in ("rope_scaling", "rope_parameters"):
    params = raw.get(section) or {}
    if rope_type(params, raw.get("model_type")) == "longrope":
      # Longer texts have other wavelengths, from their first token on.
      key = "original_max_position_embeddings"
      allowed = raw.get(key) or params.get(key) or allowed
    elif allowed and (factor := params.get("factor")):
      # Some files give the length before it is scaled.
      allowed = int(allowed * max(factor, 1))
  if allowed and tokens > allowed:
    raise ValueError(
      f"sampling.max_prompt_tokens + sampling.max_completion_tokens is {tokens}; the "
      f"model's {key} allows {allowed}"
    )


def saved_dtype(path: Path) -> str:
  """Reads the dtype of a checkpoint's weights from its `config.json`."""
  raw = read_json(Path(path) / CONFIG)
  return raw.get("dtype") or raw.get("torch_dtype") or "float32"


def check(path: Path, config: DecoderConfig) -> None:
  """Checks that `load_params` will succeed, by the names and shapes of tensors.

  Args:
    path: checkpoint directory.
    config: configuration of the decoder.

  Raises:
    ValueError: see `load_params`.
  """
  _open_checked(path, config)


def _open_checked(path: Path, config: DecoderConfig) -> tuple[Checkpoint, list[Tensor]]:
  layout = find_family(read_json(Path(path) / CONFIG)).layout
  checkpoint, expected = open_checkpoint(Path(path)), tensors(config, layout)
  check_tensors(checkpoint, expected, config)
  return checkpoint, expected


def load_params(
  path: Path, config: DecoderConfig, shardings: PyTree, dtype: jnp.dtype = jnp.float32
) -> PyTree:
  """Loads the parameters of a checkpoint directory.

  One tensor at a time is on the host; from there it goes straight to its devices, and into
  its layer of the stacked parameters.

  Args:
    path: directory with `model.safetensors` or its shards.
    config: configuration of the decoder, from `load_config`.
    shardings: shardings of the parameters, from `partitioning.param_shardings`.
    dtype: dtype of the parameters.

  Returns:
    Parameters of a `Decoder`, with the structure of `shardings`.

  Raises:
    ValueError: if a tensor is missing, is quantized, has a shape other than the
      configuration's, or belongs to no parameter; the message names it. All tensors are
      checked before any is read. Also if a tensor has values that are not finite.
  """
  checkpoint, expected = _open_checked(path, config)
  return {"params": read_tensors(checkpoint, expected, shardings["params"], dtype)}


def read_tensors(
  checkpoint: Checkpoint, expected: list[Tensor], shardings: PyTree, dtype: jnp.dtype
) -> PyTree:
  """Reads parameters, after `check_tensors`.

  Args:
    checkpoint: checkpoint to read from.
    expected: tensors to read; those of a stacked parameter are adjacent.
    shardings: nested mapping of shardings by the paths of parameters; it may have more of
      them.
    dtype: dtype of the parameters.

  Returns:
    A nested mapping of arrays by the paths of parameters.
  """
  params = {}
  for keys, group in itertools.groupby(expected, key=lambda tensor: tensor.path):
    sharding = functools.reduce(lambda tree, key: tree[key], keys, shardings)
    *inner, last = keys
    node = functools.reduce(lambda tree, key: tree.setdefault(key, {}), inner, params)
    node[last] = _parameter(checkpoint, list(group), sharding, dtype)
  return params


def check_tensors(
  checkpoint: Checkpoint, expected: list[Tensor], config: DecoderConfig
) -> None:
  """Checks that a checkpoint has the expected tensors and no others.

  Raises:
    ValueError: see `load_params`.
  """
  folder, shapes = checkpoint.folder, checkpoint.shapes
  for tensor in expected:
    if tensor.name not in shapes:
      raise ValueError(f"tensor {tensor.name} is missing in {folder}")
    if shapes[tensor.name] != tensor.file_shape:
      raise ValueError(
        f"tensor {tensor.name} in {folder} has shape {shapes[tensor.name]}; the "
        f"configuration asks for {tensor.file_shape}"
      )
    dtype = checkpoint.dtypes[tensor.name]
    if dtype not in _DTYPES:
      supported = ", ".join(_DTYPES)
      raise ValueError(
        f"tensor {tensor.name} in {folder} is {dtype}; supported are {supported}"
      )
  for name in sorted(shapes.keys() - {tensor.name for tensor in expected}):
    if name == UNEMBEDDING and config.tie_embeddings:
      # Some checkpoints save tied embeddings twice, which is fine if they are equal.
      if not np.array_equal(checkpoint.read(name), checkpoint.read(EMBEDDING)):
        raise ValueError(
          f"tensor {name} in {folder} differs from {EMBEDDING}, but embeddings are tied"
        )
    elif not name.endswith(_IGNORED):
      raise ValueError(f"tensor {name} in {folder} is unexpected: it is no parameter's")


def _parameter(
  checkpoint: Checkpoint, group: list[Tensor], sharding: Sharding, dtype: jnp.dtype
) -> Array:
  """Reads one parameter from its tensor, or from those that are stacked."""
  axes = stacked_axes(group)
  if not axes:
    return _place(checkpoint, group[0], sharding, dtype)
  shape = (*axes, *group[0].shape)
  stacked = jax.jit(lambda: jnp.zeros(shape, dtype), out_shardings=sharding)()
  put = jax.jit(
    lambda stacked, part, index: stacked.at[index].set(part),
    donate_argnums=0,
    out_shardings=sharding,
  )
  for tensor in group:
    part = _place(checkpoint, tensor, _without(len(axes), sharding), dtype)
    stacked = put(stacked, part, tensor.index)
  return stacked


def _without(axes: int, sharding: Sharding) -> Sharding:
  """Removes the axes that a parameter is stacked on."""
  if isinstance(sharding, NamedSharding):
    return NamedSharding(sharding.mesh, PartitionSpec(*sharding.spec[axes:]))
  return sharding  # a single device, for any shape


def _place(
  checkpoint: Checkpoint, tensor: Tensor, sharding: Sharding, dtype: jnp.dtype
) -> Array:
  value = checkpoint.read(tensor.name, tensor.part)
  if not np.isfinite(value).all():
    raise UserError(
      f"tensor {tensor.name} of {checkpoint.files[tensor.name]} has values that are not "
      "finite; the file is damaged, or its training diverged"
    )
  value = tensor.from_file(value)
  assert value.size == math.prod(tensor.shape)
  placed = jax.make_array_from_callback(tensor.shape, sharding, lambda at: value[at])
  return placed.astype(dtype)  # on the devices; the host holds the file's dtype only
