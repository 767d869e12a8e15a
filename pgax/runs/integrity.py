"""Digests of checkpoints, and the choice of the newest one that is not damaged.

Every checkpoint holds a file `SHA256SUMS`, which `sha256sum --check SHA256SUMS` reads too.
It names the files of the checkpoint, and those of the folder `frozen` beside them all. A
process may be killed between a checkpoint and its digests; such a checkpoint counts as
good if all of it can be read, and a run that continues writes its digests.
"""

import functools
import hashlib
import itertools
import json
import os
import re
import warnings
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
import orbax.checkpoint as ocp

from pgax.errors import UserError
from pgax.runs.workdir import DAMAGED

CHECKPOINTS, FROZEN = "checkpoints", "frozen"  # folders of a run
DIGESTS = "SHA256SUMS"
_LATEST = ".latest_checkpoint"  # file of a run with the number of its latest checkpoint
_NUMBER = re.compile(r"0|[1-9][0-9]*")


class DamagedCheckpointWarning(UserWarning):
  """A checkpoint is damaged, and an earlier one is used."""


def write_digests(workdir: Path, number: int) -> None:
  """Writes the digests of a checkpoint, and its number as the latest one of the run.

  Args:
    workdir: folder of the run.
    number: number of a complete checkpoint.
  """
  checkpoint = workdir / CHECKPOINTS / str(number)
  digests = {path: _digest(path) for path in _files(checkpoint)} | _frozen(workdir)
  lines = [f"{x}  {os.path.relpath(path, checkpoint)}\n" for path, x in digests.items()]
  _write(checkpoint / DIGESTS, "".join(lines))
  _write(workdir / _LATEST, f"{number}\n")


def find_damage(checkpoint: Path) -> str:
  """Compares a checkpoint with its digests.

  Args:
    checkpoint: folder of a checkpoint.

  Returns:
    What is wrong with the first bad file; empty if all are good.
  """
  if not (checkpoint / DIGESTS).exists():
    return _unreadable(checkpoint)
  try:
    lines = (checkpoint / DIGESTS).read_text(encoding="utf-8").splitlines()
    parts = (line.partition("  ") for line in lines)
    digests = {_path(checkpoint, name): digest for digest, _, name in parts}
    for path, digest in digests.items():
      if _digest(path) != digest:
        return f"{os.path.relpath(path, checkpoint)} differs from its SHA-256"
  except (OSError, ValueError) as error:  # the latter for names that are no text
    return f"{DIGESTS} or a file that it names can't be read: {error}"
  # Only what a run saved: others may have left files of their own in the folder.
  items = itertools.chain(_files(checkpoint / "state"), _files(checkpoint / "data"))
  missing = next((path for path in items if path not in digests), None)
  return f"{DIGESTS} lacks {missing.relative_to(checkpoint)}" if missing else ""


def newest_good(workdir: Path, read_only: bool = True) -> int | None:
  """Finds the newest checkpoint that is not damaged, and warns of newer ones that are.

  Args:
    workdir: folder of the run.
    read_only: whether to leave the folder unchanged. Otherwise the damaged ones are moved
      to the folder `damaged`, and the newest good one gets its digests if it has none.

  Returns:
    The number of the checkpoint; None if the run has never had one.

  Raises:
    UserError: if there were checkpoints, but all are damaged or gone; or if the folder
      can't be changed.
  """
  folder, latest, damages = workdir / CHECKPOINTS, _latest(workdir), {}
  for number in _numbers(folder):
    if not (damage := find_damage(folder / str(number))):
      break
    damages[number] = f"checkpoint {folder / str(number)} is damaged: {damage}"
  else:
    if not damages and latest is None:
      return None
    gone = f"the run had checkpoint {latest}, and {folder} holds none now"
    raise UserError(
      f"{'; '.join(damages.values()) or gone}. There is no good one left, and nothing was "
      "changed. Restore a copy of a checkpoint, or start again in a new workdir"
    )
  if not damages and latest is not None and latest > number:
    damages[latest] = f"checkpoint {folder / str(latest)} is gone"
  if damages:
    _warn(
      f"{'; '.join(damages.values())}. Checkpoint {number} is the newest good one and is "
      "used; what came after it is lost, and a run that continues does it again"
    )
  if not read_only:
    _tidy(workdir, number, damages)
  return number


def _tidy(workdir: Path, good: int, damages: dict[int, str]) -> None:
  """Moves damaged checkpoints out of the way, and completes the one to continue from."""
  checkpoints = [workdir / CHECKPOINTS / str(number) for number in damages]
  for checkpoint in filter(Path.exists, checkpoints):
    target = _free_name(workdir / DAMAGED / checkpoint.name)
    try:
      target.parent.mkdir(exist_ok=True)
      checkpoint.rename(target)
    except OSError as error:
      raise UserError(
        f"the damaged checkpoint {checkpoint} can't be moved to {target}: "
        f"{error.strerror}. Move it out of its folder to continue"
      ) from None
    _warn(f"the damaged checkpoint {checkpoint.name} was moved to {target}")
  complete = (workdir / CHECKPOINTS / str(good) / DIGESTS).exists()
  try:
    if not complete:
      write_digests(workdir, good)
    elif damages:
      _write(workdir / _LATEST, f"{good}\n")
  except OSError as error:
    raise UserError(
      f"the digests of checkpoint {good} can't be written: {error.strerror}. Make "
      f"{workdir} writable to continue"
    ) from None


def _files(folder: Path) -> Iterator[Path]:
  """Yields the files of a folder, except hidden ones and digests."""
  for path in sorted(folder.rglob("*")):
    if path.is_file() and not path.name.startswith(".") and path.name != DIGESTS:
      yield path


def _path(checkpoint: Path, name: str) -> Path:
  """Returns the path of a file that digests name, also if `checkpoints` is a link."""
  frozen = name.removeprefix("../../")
  return checkpoint / name if frozen == name else checkpoint.parent.parent / frozen


def _digest(path: Path) -> str:
  with path.open("rb") as file:
    return hashlib.file_digest(file, "sha256").hexdigest()


def _frozen(workdir: Path) -> dict[Path, str]:
  folder = workdir / FROZEN
  return _digests_of(folder, folder.stat().st_mtime_ns) if folder.exists() else {}


@functools.lru_cache(maxsize=1)
def _digests_of(folder: Path, _modified: int) -> dict[Path, str]:
  """Digests of a folder that does not change, once and not for every checkpoint."""
  return {path: _digest(path) for path in _files(folder)}


def _write(path: Path, text: str) -> None:
  """Writes a file in one step, whenever the process may be killed."""
  temporary = path.with_name(f".{path.name}.tmp")  # hidden, so `_files` skips it
  temporary.write_text(text, encoding="utf-8")
  temporary.replace(path)


def _warn(message: str) -> None:
  warnings.warn(message, DamagedCheckpointWarning, stacklevel=3)


def _latest(workdir: Path) -> int | None:
  """Number of the latest checkpoint that was saved; None if there was none."""
  try:
    return int((workdir / _LATEST).read_text(encoding="ascii"))
  except (OSError, ValueError):
    return None


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
  """Returns why a checkpoint without digests can't be read; empty if it can."""
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
  names = itertools.chain([""], (f"-{count}" for count in itertools.count(2)))
  paths = (path.with_name(f"{path.name}{name}") for name in names)
  return next(path for path in paths if not path.exists())
