"""Parameters as a checkpoint directory that transformers reads."""

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
from pgax.models.hf.config import from_hf, same_checkpoint, to_hf
from pgax.models.hf.files import CONFIG, GENERATION, INDEX, WEIGHTS, read_json
from pgax.models.hf.names import Tensor, tensors
from pgax.types import PyTree

_SPECIAL = ("bos_token_id", "eos_token_id", "pad_token_id")
DTYPES = ("float32", "bfloat16", "float16")
_POSITIONS = 32_768  # for a configuration without a source; the decoder knows no limit


def save(
  path: Path,
  config: DecoderConfig,
  params: PyTree,
  tokenizer: PreTrainedTokenizerBase | None,
  source: Path | None = None,
  dtype: str = "float32",
  max_file_bytes: int = 5 * 10**9,
) -> None:
  """Writes a checkpoint directory: configuration, safetensors and tokenizer.

  It appears under its name when it is complete. One file's tensors are on the host at a
  time. With several processes the first one writes, and all must call.

  Args:
    path: of the directory; new or empty.
    config: of the decoder.
    params: its parameters.
    tokenizer: of the model, saved with its chat template; None for none.
    source: directory that the model was loaded from, whose `config.json` (token ids,
      architecture, whatever else it says) and `generation_config.json` are kept; None for a
      new `config.json`.
    dtype: of the saved tensors, `float32`, `bfloat16` or `float16`.
    max_file_bytes: size of a file's tensors from which on another is begun.

  Raises:
    ValueError: if the directory is not empty, the dtype is another, the parameters are not
      those of `config`, no architecture of transformers is this decoder, or `source` is of
      another one.
  """
  raw = _config(config, tokenizer, source, dtype)
  generation = Path(source) / GENERATION if source is not None else None
  extra = (generation,) if generation and generation.is_file() else ()
  write(path, raw, tensors(config), params, tokenizer, dtype, max_file_bytes, extra)


def write(
  path: Path,
  raw: dict[str, Any],
  wanted: list[Tensor],
  params: PyTree,
  tokenizer: PreTrainedTokenizerBase | None,
  dtype: str,
  max_file_bytes: int,
  extra: tuple[Path, ...] = (),
) -> None:
  """Writes what `save` describes, of any tensors.

  Args:
    path: as for `save`.
    raw: `config.json`.
    wanted: the tensors.
    params: the parameters that they are.
    tokenizer: as for `save`.
    dtype: as for `save`.
    max_file_bytes: as for `save`.
    extra: files to copy beside them.

  Raises:
    ValueError: as `save` does.
  """
  path = Path(path)
  if path.exists() and not (path.is_dir() and not any(path.iterdir())):
    raise ValueError(f"{path} is there and is not an empty directory; give another")
  if dtype not in DTYPES:
    raise ValueError(f"dtype is {dtype!r}; it must be one of {', '.join(DTYPES)}")
  if max_file_bytes < 1:
    raise ValueError(f"max_file_bytes is {max_file_bytes}; it must be at least 1")
  _check(params, wanted)
  writes = jax.process_index() == 0
  partial = path.with_name(f".{path.name}.unfinished")
  if writes:
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
  _save_weights(partial, wanted, params, jnp.dtype(dtype), max_file_bytes, writes)
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
    return to_hf(config) | special | {"max_position_embeddings": _POSITIONS, "dtype": dtype}
  raw = read_json(Path(source) / CONFIG)
  differing = same_checkpoint(config, from_hf(raw))
  if differing:
    raise ValueError(f"{source} is of another model: {', '.join(differing)} differ")
  raw.pop("torch_dtype", None)  # the older name would contradict
  return raw | {"dtype": dtype}


def _leaf(params: PyTree, tensor: Tensor) -> jax.Array | None:
  node = params["params"]
  for key in tensor.path:
    node = node.get(key) if hasattr(node, "get") else None
  return node


def _check(params: PyTree, wanted: list[Tensor]) -> None:
  """Makes sure that the parameters are those of the configuration, all of them."""
  layers = {}
  for tensor in wanted:
    layers[tensor.path] = layers.get(tensor.path, 0) + (tensor.layer is not None)
  for tensor in wanted:
    count = layers[tensor.path]
    shape = (count, *tensor.shape) if count else tensor.shape
    leaf = _leaf(params, tensor)
    found = "absent" if leaf is None else f"of shape {leaf.shape}"
    if leaf is None or leaf.shape != shape:
      raise ValueError(
        f"parameter {'.'.join(tensor.path)} must be of {shape}; it is {found}"
      )
  for path, _ in jax.tree_util.tree_leaves_with_path(params["params"]):
    keys = tuple(str(part.key) for part in path)
    if keys not in layers:
      raise ValueError(f"parameter {'.'.join(keys)} is surplus: no tensor is made of it")


@dataclasses.dataclass(frozen=True)
class _File:
  name: str
  tensors: list[Tensor]


def _plan(wanted: list[Tensor], itemsize: int, limit: int) -> list[_File]:
  """Which tensors go into which file, each as full as the limit lets it."""
  groups, size = [[]], 0
  for tensor in wanted:
    size += math.prod(tensor.shape) * itemsize
    if groups[-1] and size > limit:
      groups.append([])
      size = math.prod(tensor.shape) * itemsize
    groups[-1].append(tensor)
  if len(groups) == 1:
    return [_File(WEIGHTS, groups[0])]
  stem = WEIGHTS.removesuffix(".safetensors")
  return [
    _File(f"{stem}-{i:05d}-of-{len(groups):05d}.safetensors", group)
    for i, group in enumerate(groups, 1)
  ]


def _save_weights(
  folder: Path,
  wanted: list[Tensor],
  params: PyTree,
  dtype: jnp.dtype,
  limit: int,
  writes: bool,
) -> None:
  files = _plan(wanted, dtype.itemsize, limit)
  for file in files:
    arrays = {t.name: _fetch(_leaf(params, t), t, dtype) for t in file.tensors}
    if writes:
      # Without this word transformers does not take the file.
      save_file(arrays, folder / file.name, metadata={"format": "pt"})
  if writes and len(files) > 1:
    total = sum(math.prod(t.shape) for t in wanted) * dtype.itemsize
    names = {t.name: file.name for file in files for t in file.tensors}
    _write_json(
      folder / INDEX, {"metadata": {"total_size": total}, "weight_map": dict(names)}
    )


def _fetch(leaf: jax.Array, tensor: Tensor, dtype: jnp.dtype) -> np.ndarray:
  """A tensor of the checkpoint on the host, of an array that may lie on many devices."""
  value = (leaf if tensor.layer is None else leaf[tensor.layer]).astype(dtype)
  if isinstance(value.sharding, NamedSharding) and not value.is_fully_addressable:
    everywhere = NamedSharding(value.sharding.mesh, PartitionSpec())
    value = jax.jit(lambda x: x, out_shardings=everywhere)(value).addressable_data(0)
  return tensor.to_file(np.asarray(value))
