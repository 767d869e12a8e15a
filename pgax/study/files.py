"""The folder of a study: one file for each finished chunk."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pgax.errors import UserError

_RECORD = "study.json"


def open_folder(folder: Path, record: Mapping[str, Any]) -> None:
  """Creates the folder of a study, or checks that it is the same study's.

  Args:
    folder: the folder.
    record: JSON values that identify the study.

  Raises:
    UserError: if the folder has another record.
  """
  folder.mkdir(parents=True, exist_ok=True)
  path, text = folder / _RECORD, json.dumps(record, indent=2, sort_keys=True)
  if not path.exists():
    _replace(path, text.encode())
    return
  saved = json.loads(path.read_text())
  if saved != json.loads(text):
    ours = json.loads(text)
    names = sorted(x for x in {*saved, *ours} if saved.get(x) != ours.get(x))
    raise UserError(
      f"{folder} holds another study: {', '.join(names)} differ. Give another folder, or "
      "remove this one"
    )


def save_chunk(path: Path, metrics: Mapping[str, np.ndarray]) -> None:
  """Writes the metrics of a chunk to `PATH.npz`, completely or not at all."""
  temporary = path.with_suffix(".tmp")
  with temporary.open("wb") as file:
    # A file has no folders: `eval/accuracy` is saved under another name.
    np.savez(file, **{key.replace("/", "|"): x for key, x in metrics.items()})
  os.replace(temporary, path.with_suffix(".npz"))


def load_chunk(path: Path) -> dict[str, np.ndarray] | None:
  """Reads the metrics of a finished chunk from `PATH.npz`; None if there are none."""
  file = path.with_suffix(".npz")
  if not file.exists():
    return None
  with np.load(file) as arrays:
    return {key.replace("|", "/"): arrays[key] for key in arrays.files}


def _replace(path: Path, content: bytes) -> None:
  temporary = path.with_suffix(".tmp")
  temporary.write_bytes(content)
  os.replace(temporary, path)
