"""Opens the safetensors files of a checkpoint as one mapping from names to tensors."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401  adds bfloat16 to NumPy, which safetensors then returns
import numpy as np
from safetensors import SafetensorError, safe_open

CONFIG, GENERATION = "config.json", "generation_config.json"
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"


def read_json(path: Path) -> dict[str, Any]:
  """Reads a JSON file that holds an object.

  Raises:
    ValueError: if the file is missing or is not a JSON object; the message names it.
  """
  try:
    value = json.loads(path.read_text(encoding="utf-8"))
  except OSError as error:
    raise ValueError(f"{path} can't be read: {error.strerror}") from None
  except ValueError as error:
    raise ValueError(f"{path} is not JSON: {error}") from None
  if not isinstance(value, dict):
    raise ValueError(f"{path} is not a JSON object")
  return value


@dataclasses.dataclass(frozen=True)
class Checkpoint:
  """Tensors of a checkpoint, read one at a time.

  Attributes:
    folder: directory of the checkpoint.
    files: file of each tensor.
    shapes: shape of each tensor.
    dtypes: dtype of each tensor, in the names of safetensors.
  """

  folder: Path
  files: Mapping[str, Path]
  shapes: Mapping[str, tuple[int, ...]]
  dtypes: Mapping[str, str]

  def read(self, name: str, rows: slice = slice(None)) -> np.ndarray:
    """Reads a tensor to the host, in the dtype of the file.

    Args:
      name: name of the tensor.
      rows: rows to read; by default all of them.

    Returns:
      The tensor, or its rows.

    Raises:
      ValueError: if the tensor can't be read, for instance because NumPy lacks its dtype.
    """
    try:
      with safe_open(self.files[name], framework="numpy") as opened:
        return opened.get_slice(name)[rows]
    except (KeyError, TypeError, AttributeError, SafetensorError) as error:
      message = f"tensor {name} of {self.files[name]} can't be read"
      raise ValueError(f"{message}: {type(error).__name__}: {error}") from error


def open_checkpoint(folder: Path) -> Checkpoint:
  """Lists the tensors of a checkpoint without reading them.

  Args:
    folder: directory with `model.safetensors`, or with its shards and their index.

  Returns:
    A `Checkpoint`.

  Raises:
    ValueError: if a file is missing or broken, or lacks a tensor of the index; the message
      names it.
  """
  index = None
  if (folder / INDEX).is_file():
    index = read_json(folder / INDEX).get("weight_map", {})
    if not isinstance(index, dict) or not all(isinstance(x, str) for x in index.values()):
      raise ValueError(f"{folder / INDEX} must have an object weight_map of file names")
    paths = [folder / name for name in sorted(set(index.values()))]
  else:
    paths = [folder / WEIGHTS]
  files, shapes, dtypes = {}, {}, {}
  for path in paths:
    if not path.is_file():
      raise ValueError(
        f"{path} is missing; a checkpoint has {WEIGHTS}, or {INDEX} with its shards"
      )
    try:
      with safe_open(path, framework="numpy") as opened:
        for name in opened.keys():  # noqa: SIM118  it is not a mapping
          tensor = opened.get_slice(name)
          files[name], shapes[name] = path, tuple(tensor.get_shape())
          dtypes[name] = tensor.get_dtype()
    except SafetensorError as error:
      raise ValueError(f"{path} is not a safetensors file: {error}") from None
  for name, file in (index or {}).items():
    if files.get(name) != folder / file:
      raise ValueError(f"tensor {name} is not in {folder / file}, contrary to {INDEX}")
  return Checkpoint(folder, files, shapes, dtypes)
