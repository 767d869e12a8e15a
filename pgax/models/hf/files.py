"""The safetensors files of a checkpoint, opened as one mapping from names to tensors."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401  teaches NumPy bfloat16, which safetensors then gives back
import numpy as np
from safetensors import SafetensorError, safe_open

CONFIG, GENERATION = "config.json", "generation_config.json"
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"


def read_json(path: Path) -> dict[str, Any]:
  """A JSON file as a mapping.

  Raises:
    ValueError: if it is absent or is not a JSON object; it names the file.
  """
  try:
    found = json.loads(path.read_text(encoding="utf-8"))
  except OSError as error:
    raise ValueError(f"{path} can't be read: {error.strerror}") from None
  except ValueError as error:
    raise ValueError(f"{path} is not JSON: {error}") from None
  if not isinstance(found, dict):
    raise ValueError(f"{path} is not a JSON object")
  return found


@dataclasses.dataclass(frozen=True)
class Checkpoint:
  """Tensors of a checkpoint, read one at a time.

  Attributes:
    folder: of the checkpoint.
    files: the file that each tensor is in.
    shapes: the shape of each tensor.
    dtypes: the dtype of each tensor, as safetensors calls it.
  """

  folder: Path
  files: Mapping[str, Path]
  shapes: Mapping[str, tuple[int, ...]]
  dtypes: Mapping[str, str]

  def read(self, name: str) -> np.ndarray:
    """A tensor, on the host, in the file's dtype.

    Raises:
      ValueError: if NumPy has no such dtype.
    """
    try:
      with safe_open(self.files[name], framework="numpy") as opened:
        return opened.get_tensor(name)
    except (KeyError, TypeError, AttributeError, SafetensorError) as error:
      told = f"{type(error).__name__}: {error}"
      raise ValueError(
        f"tensor {name} of {self.files[name]} can't be read: {told}"
      ) from error


def open_checkpoint(folder: Path) -> Checkpoint:
  """Reads which tensors there are, and none of them.

  Args:
    folder: with `model.safetensors`, or with its parts and their index.

  Returns:
    A `Checkpoint`.

  Raises:
    ValueError: if a file is absent or broken, or lacks a tensor that the index promises; it
      names it.
  """
  promised = None
  if (folder / INDEX).is_file():
    promised = read_json(folder / INDEX).get("weight_map", {})
    paths = [folder / name for name in sorted(set(promised.values()))]
  else:
    paths = [folder / WEIGHTS]
  files, shapes, dtypes = {}, {}, {}
  for path in paths:
    if not path.is_file():
      raise ValueError(
        f"{path} is absent; there must be {WEIGHTS}, or {INDEX} with its parts"
      )
    try:
      with safe_open(path, framework="numpy") as opened:
        for name in opened.keys():  # noqa: SIM118  it is no mapping
          tensor = opened.get_slice(name)
          files[name], shapes[name] = path, tuple(tensor.get_shape())
          dtypes[name] = tensor.get_dtype()
    except SafetensorError as error:
      raise ValueError(f"{path} is not a safetensors file: {error}") from None
  for name, file in (promised or {}).items():
    if files.get(name) != folder / file:
      raise ValueError(f"tensor {name} is not in {folder / file}, where {INDEX} has it")
  return Checkpoint(folder, files, shapes, dtypes)
