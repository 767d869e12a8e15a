"""Saves parameters as a checkpoint directory that transformers can load."""

import dataclasses
import json
import math
import shutil
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from safetensors.numpy import save_file
from transformers import PreTrainedTokenizerBase

from pgax.models.config import DecoderConfig
from pgax.models.hf.config import differing_fields, from_hf, to_hf
from pgax.models.hf.families import find_family
from pgax.models.hf.files import CONFIG, GENERATION, INDEX, WEIGHTS, read_json
from pgax.models.hf.names import Tensor, stacked_axes, tensors
from pgax.types import PyTree

_SPECIAL = ("bos_token_id", "eos_token_id", "pad_token_id")
DTYPES = ("float32", "bfloat16", "float16")
_MAX_POSITIONS = 32_768  # for a new config.json; the decoder itself has no limit


def save(
  path: Path,
  config: DecoderConfig,
  params: PyTree,
  tokenizer: PreTrainedTokenizerBase | None,
  source: Path | None = None,
  dtype: str = "float32",
  max_file_bytes: int = 5 * 10**9,
) -> None:
  """Saves a checkpoint directory: configuration, safetensors and tokenizer.

  The directory gets its name when it is complete. The tensors of one file at a time are on
  the host. With several processes the first one writes, and all must call this function.

  Args:
    path: directory to write; new or empty.
    config: configuration of the decoder.
    params: parameters of the decoder.
    tokenizer: tokenizer to save with the model, chat template included; or None.
    source: directory that the model was loaded from, whose `config.json` (token ids,
      architecture and all other settings) and `generation_config.json` are kept; None for a
      new `config.json`.
    dtype: dtype of the saved tensors, `float32`, `bfloat16` or `float16`.
    max_file_bytes: largest size of a file's tensors; a larger tensor has its own file.

  Raises:
    ValueError: if the directory is not empty, the dtype is not supported, the parameters
      don't match `config`, no architecture of transformers can express the decoder, or
      `source` has another decoder.
  """
  raw = _config(config, tokenizer, source, dtype)
  generation = Path(source) / GENERATION if source is not None else None
  extra = (generation,) if generation and generation.is_file() else ()
  expected = tensors(config, find_family(raw).layout)
  write(path, raw, expected, params, tokenizer, dtype, max_file_bytes, extra)


def write(
  path: Path,
  raw: dict[str, Any],
  expected: list[Tensor],
  params: PyTree,
  tokenizer: PreTrainedTokenizerBase | None,
  dtype: str,
  max_file_bytes: int,
  extra: tuple[Path, ...] = (),
) -> None:
  """Writes a checkpoint directory with the given tensors; see `save`.

  Args:
    path: directory to write; new or empty.
    raw: contents of `config.json`.
    expected: tensors of the checkpoint.
    params: parameters that the tensors are made from.
    tokenizer: tokenizer to save with the model, or None.
    dtype: dtype of the saved tensors.
    max_file_bytes: largest size of a file's tensors; a larger tensor has its own file.
    extra: files to copy into the directory.

  Raises:
    ValueError: if the directory is not empty, the dtype is not supported, or the parameters
      don't match the tensors.
  """
  path = Path(path)
  writes = jax.process_index() == 0
  if writes and path.exists() and not (path.is_dir() and not any(path.iterdir())):
    raise ValueError(f"{path} exists and is not an empty directory")
  if dtype not in DTYPES:
    raise ValueError(f"dtype is {dtype!r}; it must be one of {', '.join(DTYPES)}")
  if max_file_bytes < 1:
    raise ValueError(f"max_file_bytes is {max_file_bytes}; it must be at least 1")
  _check(params, expected)
  partial = path.with_name(f".{path.name}.unfinished")
  if writes:
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
  _save_weights(partial, expected, params, jnp.dtype(dtype), max_file_bytes, writes)
  if not writes:
    return
  if tokenizer is not None:
    tokenizer.save_pretrained(partial)
  for file in extra:
    shutil.copyfile(file, partial / file.name)
  _write_json(partial / CONFIG, raw)
  if path.exists():
    path.rmdir()
  partial.rename(path)


def _write_json(path: Path, value: dict[str, Any]) -> None:
  path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def _config(
  config: DecoderConfig,
  tokenizer: PreTrainedTokenizerBase | None,
  source: Path | None,
  dtype: str,
) -> dict[str, Any]:
  if source is None:
    special = {name: getattr(tokenizer, name, None) for name in _SPECIAL}
    return (
      to_hf(config) | special | {"max_position_embeddings": _MAX_POSITIONS, "dtype": dtype}
    )
  raw = read_json(Path(source) / CONFIG)
  differing = differing_fields(config, from_hf(raw))
  if differing:
    raise ValueError(f"{source} has another model: {', '.join(differing)} differ")
  raw.pop("torch_dtype", None)  # the older name of dtype
  return raw | {"dtype": dtype}


def _leaf(params: PyTree, tensor: Tensor) -> jax.Array | None:
  node = params["params"]
  for key in tensor.path:
    node = node.get(key) if hasattr(node, "get") else None
  return node


def _check(params: PyTree, expected: list[Tensor]) -> None:
  """Checks that each parameter has its tensors, and each tensor its parameter."""
  groups = {}
  for tensor in expected:
    groups.setdefault(tensor.path, []).append(tensor)
  for group in groups.values():
    tensor, shape = group[0], (*stacked_axes(group), *group[0].shape)
    leaf = _leaf(params, tensor)
    if leaf is None:
      raise ValueError(f"parameter {'.'.join(tensor.path)} of shape {shape} is missing")
    if leaf.shape != shape:
      raise ValueError(
        f"parameter {'.'.join(tensor.path)} has shape {leaf.shape}; it must have {shape}"
      )
  for path, _ in jax.tree_util.tree_leaves_with_path(params["params"]):
    keys = tuple(str(part.key) for part in path)
    if keys not in groups:
      raise ValueError(f"parameter {'.'.join(keys)} is unexpected: it has no tensor")


@dataclasses.dataclass(frozen=True)
class _File:
  """A file, and the parts of each of its tensors, in the order of their rows."""

  name: str
  tensors: dict[str, list[Tensor]]


def _plan(expected: list[Tensor], itemsize: int, limit: int) -> list[_File]:
  """Distributes tensors over files, in order, filling each file up to the limit."""
  named = {}
  for tensor in sorted(expected, key=lambda tensor: tensor.first_row):
    named.setdefault(tensor.name, []).append(tensor)
  groups, size = [{}], 0
  for name in dict.fromkeys(tensor.name for tensor in expected):
    bytes_ = math.prod(named[name][0].file_shape) * itemsize
    size += bytes_
    if groups[-1] and size > limit:
      groups.append({})
      size = bytes_
    groups[-1][name] = named[name]
  if len(groups) == 1:
    return [_File(WEIGHTS, groups[0])]
  stem = WEIGHTS.removesuffix(".safetensors")
  return [
    _File(f"{stem}-{i:05d}-of-{len(groups):05d}.safetensors", group)
    for i, group in enumerate(groups, 1)
  ]


def _save_weights(
  folder: Path,
  expected: list[Tensor],
  params: PyTree,
  dtype: jnp.dtype,
  limit: int,
  writes: bool,
) -> None:
  files = _plan(expected, dtype.itemsize, limit)
  for file in files:
    arrays = {
      name: _join([_fetch(_leaf(params, part), part, dtype) for part in parts])
      for name, parts in file.tensors.items()
    }
    if writes:
      # Without this metadata transformers rejects the file.
      save_file(arrays, folder / file.name, metadata={"format": "pt"})
  if writes and len(files) > 1:
    total = sum(math.prod(t.shape) for t in expected) * dtype.itemsize
    names = {name: file.name for file in files for name in file.tensors}
    _write_json(folder / INDEX, {"metadata": {"total_size": total}, "weight_map": names})


def _join(parts: list[np.ndarray]) -> np.ndarray:
  return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _fetch(leaf: jax.Array, tensor: Tensor, dtype: jnp.dtype) -> np.ndarray:
  """Copies a parameter to the host from an array that may be on many devices."""
  value = (leaf[tensor.index] if tensor.index else leaf).astype(dtype)
  if isinstance(value.sharding, NamedSharding) and not value.is_fully_addressable:
    everywhere = NamedSharding(value.sharding.mesh, PartitionSpec())
    value = jax.jit(lambda x: x, out_shardings=everywhere)(value).addressable_data(0)
  return tensor.to_file(np.asarray(value))
