"""The folder of a study: one file for each finished chunk."""

import contextlib
import json
import os
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from pgax.errors import UserError
from pgax.runs.lock import FolderLock

_RECORD = "study.json"
# What reading a damaged file raises; zipfile has several errors.
_DAMAGE = (OSError, EOFError, ValueError, KeyError, RuntimeError, zipfile.BadZipFile)


def open_folder(folder: Path, record: Mapping[str, Any]) -> FolderLock:
  """Creates the folder of a study, or checks that it is the same study's, and locks it.

  Args:
    folder: the folder.
    record: JSON values that identify the study.

  Returns:
    The lock of the folder, a context manager that releases it.

  Raises:
    UserError: if the folder can't be written, is in use by another process, or has another
      record.
  """
  try:
    folder.mkdir(parents=True, exist_ok=True)
    lock = FolderLock(folder)
  except OSError as error:
    raise UserError(
      f"folder {folder} can't be written: {error.strerror}. Give a writable folder"
    ) from None
  try:
    _check_record(folder, record)
  except BaseException:
    lock.release()
    raise
  return lock


def _check_record(folder: Path, record: Mapping[str, Any]) -> None:
  """Writes the record of a new study, or compares it with the one that is there."""
  path, text = folder / _RECORD, json.dumps(record, indent=2, sort_keys=True)
  if not path.exists():
    with _written(path) as file:
      file.write(text.encode())
    return
  with _read(path):
    saved = json.loads(path.read_text())
    if not isinstance(saved, dict):
      raise ValueError("not an object")
  ours = json.loads(text)
  if saved != ours:
    names = sorted(x for x in {*saved, *ours} if saved.get(x) != ours.get(x))
    raise UserError(
      f"{folder} holds another study: {', '.join(names)} differ. Give another folder, or "
      "remove this one"
    )


def save_chunk(path: Path, metrics: Mapping[str, np.ndarray]) -> None:
  """Writes the metrics of a chunk to `PATH.npz`, completely or not at all.

  Raises:
    UserError: if it can't be written, for instance on a full disk.
  """
  with _written(path.with_suffix(".npz")) as file:
    # A file has no folders: `eval/accuracy` is saved under another name.
    np.savez(file, **{key.replace("/", "|"): x for key, x in metrics.items()})


def load_chunk(path: Path) -> dict[str, np.ndarray] | None:
  """Reads the metrics of a finished chunk from `PATH.npz`; None if there are none.

  Raises:
    UserError: if the file is damaged.
  """
  file = path.with_suffix(".npz")
  if not file.exists():
    return None
  with _read(file), file.open("rb") as opened, np.load(opened) as arrays:
    return {key.replace("|", "/"): arrays[key] for key in arrays.files}


@contextlib.contextmanager
def _written(path: Path) -> Iterator[IO[bytes]]:
  """Opens a file that replaces `path` if all of it could be written."""
  temporary = path.with_suffix(".tmp")
  try:
    with temporary.open("wb") as file:
      yield file
    os.replace(temporary, path)
  except OSError as error:
    raise UserError(
      f"{path} can't be written: {error.strerror}. What was finished before is complete; "
      "give the same command again to continue"
    ) from error


@contextlib.contextmanager
def _read(path: Path) -> Iterator[None]:
  """Says which file is damaged."""
  try:
    yield
  except _DAMAGE as error:
    raise UserError(
      f"{path} can't be read: {error}. Remove it, and what it held is computed again"
    ) from error
