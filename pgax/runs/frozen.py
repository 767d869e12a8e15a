"""Fields of a state that a run never changes, such as the parameters under adapters.

They are saved once, in the folder `frozen` beside the checkpoints. Every checkpoint names
them with the digest of their `SHA256SUMS`, so that it can't be continued with others.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import orbax.checkpoint as ocp

from pgax.distributed.hosts import on_writer
from pgax.errors import UserError
from pgax.runs.integrity import DIGESTS, find_damage, write_sums
from pgax.types import PyTree

_FOLDER, _ITEM = "frozen", "state"


def save_frozen(workdir: Path, fields: Mapping[str, PyTree]) -> dict[str, Any]:
  """Saves fields, in place of any that are there.

  Args:
    workdir: folder of the run.
    fields: pytrees of arrays, by the names of the state's fields.

  Returns:
    JSON values that identify what was saved, for the checkpoints that need it.
  """
  folder = _folder(workdir)

  def prepare() -> None:
    folder.mkdir(exist_ok=True)
    (folder / DIGESTS).unlink(missing_ok=True)

  def digest() -> str:
    write_sums(folder)
    return _digest(folder)

  on_writer(prepare)
  with ocp.Checkpointer(ocp.StandardCheckpointHandler()) as writer:
    writer.save(folder / _ITEM, args=ocp.args.StandardSave(dict(fields)), force=True)
  return {"fields": sorted(fields), "sha256": on_writer(digest)}


def frozen_shapes(workdir: Path, record: Mapping[str, Any]) -> dict[str, PyTree]:
  """Checks saved fields by their digests, and reads their shapes.

  Args:
    workdir: folder of the run.
    record: JSON values from `save_frozen`.

  Returns:
    A pytree of shapes for each field.

  Raises:
    UserError: if the fields are missing or damaged, or are not those of the record.
  """
  on_writer(lambda: _check(workdir, record))
  return dict(ocp.PyTreeCheckpointHandler().metadata(_folder(workdir) / _ITEM).tree)


def _check(workdir: Path, record: Mapping[str, Any]) -> None:
  folder, what = _folder(workdir), _describe(workdir, record)
  again = "Restore a copy of the folder, or start again in a new workdir"
  try:
    digest = _digest(folder)
  except OSError as error:
    raise UserError(
      f"{what} can't be read: {error.filename}: {error.strerror}. {again}"
    ) from None
  if digest != record["sha256"]:
    raise UserError(
      f"{what} are not those that the checkpoint was saved with: the SHA-256 of {DIGESTS} "
      f"is {digest} and must be {record['sha256']}. {again}"
    )
  if damage := find_damage(folder):
    raise UserError(f"{what} are damaged: {damage}. {again}")


def restore_frozen(workdir: Path, like: Mapping[str, PyTree]) -> dict[str, PyTree]:
  """Reads saved fields, after `frozen_shapes`.

  Args:
    workdir: folder of the run.
    like: fields to restore, as shapes with shardings.

  Returns:
    The fields.
  """
  return restore_part(_folder(workdir) / _ITEM, like)


def restore_part(folder: Path, like: Mapping[str, PyTree]) -> dict[str, PyTree]:
  """Reads some fields of a saved state, and nothing else of it.

  Args:
    folder: folder of the state.
    like: fields to restore, as shapes with shardings; those without arrays are returned
      as they are.

  Returns:
    The fields.
  """
  wanted = {name: field for name, field in like.items() if jax.tree.leaves(field)}
  if not wanted:
    return dict(like)
  arguments = ocp.args.PyTreeRestore(
    item=wanted,
    restore_args=ocp.checkpoint_utils.construct_restore_args(wanted),
    partial_restore=True,
  )
  return dict(like) | ocp.PyTreeCheckpointHandler().restore(folder, args=arguments)


def _folder(workdir: Path) -> Path:
  return (workdir / _FOLDER).absolute()


def _digest(folder: Path) -> str:
  return hashlib.sha256((folder / DIGESTS).read_bytes()).hexdigest()


def _describe(workdir: Path, record: Mapping[str, Any]) -> str:
  fields = ", ".join(record["fields"])
  return f"the frozen parameters in {_folder(workdir)} ({fields} of the state)"
