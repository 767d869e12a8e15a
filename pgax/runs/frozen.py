"""Fields of a state that a run never changes, such as the parameters under adapters.

They are saved once, in the folder `frozen` beside the checkpoints. Every checkpoint names
them with the digest of their `SHA256SUMS`, so that it can't be continued with others.
"""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import orbax.checkpoint as ocp

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
  folder.mkdir(exist_ok=True)
  (folder / DIGESTS).unlink(missing_ok=True)
  with ocp.Checkpointer(ocp.StandardCheckpointHandler()) as writer:
    writer.save(folder / _ITEM, args=ocp.args.StandardSave(dict(fields)), force=True)
  write_sums(folder)
  return {"fields": sorted(fields), "sha256": _digest(folder)}


def frozen_shapes(workdir: Path, record: Mapping[str, Any]) -> dict[str, PyTree]:
  """Reads the shapes of saved fields.

  Args:
    workdir: folder of the run.
    record: JSON values from `save_frozen`.

  Returns:
    A pytree of shapes for each field.

  Raises:
    UserError: if the fields are missing, or others than those of the record are there.
  """
  _check_same(workdir, record)
  return dict(ocp.PyTreeCheckpointHandler().metadata(_folder(workdir) / _ITEM).tree)


def restore_frozen(
  workdir: Path, record: Mapping[str, Any], like: Mapping[str, PyTree]
) -> dict[str, PyTree]:
  """Reads saved fields.

  Args:
    workdir: folder of the run.
    record: JSON values from `save_frozen`.
    like: fields to restore, as shapes with shardings.

  Returns:
    The fields.

  Raises:
    UserError: see `frozen_shapes`; also if a file is damaged.
  """
  _check_same(workdir, record)
  folder = _folder(workdir)
  if damage := find_damage(folder):
    raise UserError(
      f"{_describe(folder, record['fields'])} are damaged: {damage}. No checkpoint can be "
      "used without them. Restore a copy of the folder, or start again in a new workdir"
    )
  return restore_part(folder / _ITEM, like)


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


def _check_same(workdir: Path, record: Mapping[str, Any]) -> None:
  """Checks that the saved fields are those of a record, without reading all of them."""
  folder = _folder(workdir)
  try:
    digest = _digest(folder)
  except OSError as error:
    raise UserError(
      f"{_describe(folder, record['fields'])} can't be read: {error.filename}: "
      f"{error.strerror}. No checkpoint can be used without them. Restore a copy of the "
      "folder, or start again in a new workdir"
    ) from None
  if digest != record["sha256"]:
    raise UserError(
      f"{_describe(folder, record['fields'])} are not those that the checkpoint was saved "
      f"with: the SHA-256 of {DIGESTS} is {digest} and must be {record['sha256']}. Restore "
      "the run's own folder"
    )


def _describe(folder: Path, fields: Sequence[str]) -> str:
  return f"the frozen parameters in {folder} ({', '.join(fields)} of the state)"
