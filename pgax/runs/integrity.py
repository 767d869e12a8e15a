"""Digests of checkpoints, and what happens to those that are damaged.

Every checkpoint holds a file `SHA256SUMS` (`sha256sum --check SHA256SUMS` reads it too). A
process may be killed between a checkpoint and its digests; such a checkpoint counts as good
if all of it can be read, and a run that continues writes its digests.
"""

import hashlib
import json
import re
import warnings
from collections.abc import Collection, Iterator
from pathlib import Path

import jax
import numpy as np
import orbax.checkpoint as ocp

from pgax.errors import UserError
from pgax.runs.workdir import DAMAGED

DIGESTS = "SHA256SUMS"
# File beside the folder of checkpoints with the number of the latest one.
_RECORD = ".latest_checkpoint"
_ITEMS = ("state", "data")  # folders of a checkpoint that hold nothing but its own files
_NUMBER = re.compile(r"0|[1-9][0-9]*")


class DamagedCheckpointWarning(UserWarning):
  """A checkpoint is damaged, and an earlier one is used."""


def write_digests(checkpoint: Path) -> None:
  """Writes the digests of all files of a checkpoint, in one step, and its number.

  Args:
    checkpoint: folder of a complete checkpoint.
  """
  write_sums(checkpoint)
  _record(checkpoint.parent, int(checkpoint.name))


def write_sums(checkpoint: Path) -> None:
  """Writes the digests of all files of a folder, in one step.

  Args:
    checkpoint: folder of a complete checkpoint.
  """
  temporary = checkpoint / f".{DIGESTS}"
  temporary.unlink(missing_ok=True)  # of a process that was killed while it wrote
  files = sorted(path for path in checkpoint.rglob("*") if path.is_file())
  lines = [f"{_digest(path)}  {path.relative_to(checkpoint)}\n" for path in files]
  temporary.write_text("".join(lines), encoding="utf-8")
  temporary.replace(checkpoint / DIGESTS)


def find_damage(checkpoint: Path) -> str:
  """Compares a checkpoint with its digests.

  Args:
    checkpoint: folder of a checkpoint.

  Returns:
    What is wrong with the first bad file; empty if all are good.
  """
  try:
    text = (checkpoint / DIGESTS).read_text(encoding="utf-8")
  except FileNotFoundError:
    return _unreadable(checkpoint)
  except (OSError, UnicodeDecodeError) as error:
    return f"{DIGESTS} can't be read: {error}"
  lines = [line.partition("  ") for line in text.splitlines()]
  if not lines:
    return f"{DIGESTS} is empty"
  for digest, _, name in lines:
    try:
      if not name or _digest(checkpoint / name) != digest:
        return f"{name or DIGESTS} differs from its SHA-256"
    except OSError as error:
      return f"{name} can't be read: {error.strerror}"
    except ValueError as error:  # a name with a null byte
      return f"{DIGESTS} names {name!r}: {error}"
  return _unnamed(checkpoint, {name for _, _, name in lines})


def _unnamed(checkpoint: Path, names: Collection[str]) -> str:
  """Says which file the digests lack, for instance as their own file was cut off."""
  for item in _ITEMS:
    for path in sorted((checkpoint / item).rglob("*")):
      name = str(path.relative_to(checkpoint))
      if path.is_file() and not path.name.startswith(".") and name not in names:
        return f"{DIGESTS} lacks {name}"
  return ""


def newest_good(folder: Path) -> int | None:
  """Finds the newest checkpoint that is not damaged, and warns of newer ones that are.

  Args:
    folder: folder of checkpoints; it need not exist.

  Returns:
    The number of the checkpoint; None if there is no checkpoint at all.

  Raises:
    UserError: if there are checkpoints, but every one of them is damaged; or if there were
      and all are gone.
  """
  damages, recorded = {}, _recorded(folder)
  for number in _numbers(folder):
    if not (damage := find_damage(folder / str(number))):
      if damages:
        warnings.warn(
          f"{_describe(folder, damages)}. Checkpoint {number} is the newest good one and "
          "is used; what came after it is lost, and a run that continues does it again",
          DamagedCheckpointWarning,
          stacklevel=2,
        )
      elif recorded is not None and recorded > number:
        warnings.warn(
          f"checkpoint {folder / str(recorded)} is gone. Checkpoint {number} is the newest "
          "one and is used; a run that continues does again what came after it",
          DamagedCheckpointWarning,
          stacklevel=2,
        )
      return number
    damages[number] = damage
  if damages:
    raise UserError(
      f"{_describe(folder, damages)}. There is no good one left, and nothing was changed. "
      "Restore a copy of a checkpoint, or start again in a new workdir"
    )
  if recorded is not None:
    raise UserError(
      f"the run had checkpoint {recorded}, and {folder} holds none now; nothing was "
      "changed. Restore a copy of a checkpoint, or start again in a new workdir"
    )
  return None


def set_aside_damaged(workdir: Path, folder: Path) -> int | None:
  """Moves checkpoints newer than the newest good one to the folder `damaged` of a run.

  The newest good one gets its digests if it has none.

  Args:
    workdir: folder of the run.
    folder: folder of its checkpoints.

  Returns:
    The number of the newest good checkpoint; None if there is no checkpoint at all.

  Raises:
    UserError: see `newest_good`.
  """
  good = newest_good(folder)
  for number in _numbers(folder):
    if number == good:
      break
    target = _free_name(workdir / DAMAGED / str(number))
    try:
      target.parent.mkdir(exist_ok=True)
      (folder / str(number)).rename(target)
    except OSError as error:
      raise UserError(
        f"the damaged checkpoint {folder / str(number)} can't be moved to {target}: "
        f"{error.strerror}. Move it out of its folder to continue"
      ) from None
    warnings.warn(
      f"the damaged checkpoint {number} was moved to {target}",
      DamagedCheckpointWarning,
      stacklevel=2,
    )
  if good is not None and not (folder / str(good) / DIGESTS).exists():
    _complete(folder / str(good))
  elif good is not None and _recorded(folder) not in (None, good):
    _record(folder, good)
  return good


def _complete(checkpoint: Path) -> None:
  """Writes the digests of a checkpoint whose process was killed before it could."""
  try:
    write_digests(checkpoint)
  except OSError as error:
    raise UserError(
      f"the digests of checkpoint {checkpoint} can't be written: {error.strerror}. Make "
      "its folder writable to continue"
    ) from None


def _record(folder: Path, number: int) -> None:
  path = folder.parent / _RECORD
  temporary = path.with_suffix(".tmp")
  temporary.write_text(f"{number}\n", encoding="ascii")
  temporary.replace(path)


def _recorded(folder: Path) -> int | None:
  """Number of the latest checkpoint that was saved; None if that is unknown."""
  try:
    return int((folder.parent / _RECORD).read_text(encoding="ascii"))
  except (OSError, ValueError):  # runs of earlier versions have none
    return None


def _digest(path: Path) -> str:
  with path.open("rb") as file:
    return hashlib.file_digest(file, "sha256").hexdigest()


def _numbers(folder: Path) -> list[int]:
  """Numbers of the checkpoints in a folder, the newest first."""
  try:
    names = [path.name for path in folder.iterdir() if path.is_dir()]
  except (FileNotFoundError, NotADirectoryError):
    return []
  except OSError as error:
    raise UserError(f"{folder} can't be read: {error.strerror}") from None
  return sorted((int(x) for x in names if _NUMBER.fullmatch(x)), reverse=True)


def _unreadable(checkpoint: Path) -> str:
  """Says why a checkpoint without digests can't be read; empty if it can."""
  try:
    if (data := checkpoint / "data" / "metadata").exists():
      json.loads(data.read_text(encoding="utf-8"))
    handler = ocp.PyTreeCheckpointHandler()
    tree = handler.metadata(checkpoint / "state").tree
    # As NumPy arrays, because the devices that it was saved on may not be here.
    as_numpy = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), tree)
    arguments = ocp.args.PyTreeRestore(restore_args=as_numpy)
    handler.restore(checkpoint / "state", args=arguments)
  except Exception as error:
    why = str(error).splitlines() or [type(error).__name__]
    return f"it has no {DIGESTS} and can't be read: {why[0][:200]}"
  return ""


def _free_name(path: Path) -> Path:
  def names() -> Iterator[Path]:
    yield path
    count = 2
    while True:
      yield path.with_name(f"{path.name}-{count}")
      count += 1

  return next(name for name in names() if not name.exists())


def _describe(folder: Path, damages: dict[int, str]) -> str:
  return "; ".join(
    f"checkpoint {folder / str(number)} is damaged: {damage}"
    for number, damage in damages.items()
  )
