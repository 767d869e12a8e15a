"""The folder of a run: created, or checked to be that run's, before anything else."""

import json
from collections.abc import Collection, Mapping
from pathlib import Path

from pgax.distributed.hosts import is_writer, shared_errors, wait_for_all
from pgax.errors import UserError
from pgax.runs.lock import LOCK, FolderLock

CONFIG = "config.json"
DAMAGED = "damaged"  # folder of a run for everything that could not be read
_PROBE, _UNFINISHED = ".writable", f".{CONFIG}"


def flatten(config: Mapping, prefix: str = "") -> dict[str, object]:
  """Flattens a nested mapping into one with dotted names."""
  flat = {}
  for key, value in config.items():
    name = f"{prefix}{key}"
    flat |= flatten(value, f"{name}.") if isinstance(value, Mapping) else {name: value}
  return flat


class WorkdirLock:
  """The lock of a run's folder, which the writer holds for all processes of the run.

  Args:
    lock: the lock; None in the other processes.
  """

  def __init__(self, lock: FolderLock | None):
    self._lock = lock

  def check(self) -> None:
    """Checks that the lock is still held; see `FolderLock.check`."""
    with shared_errors():
      if self._lock is not None:
        self._lock.check()
    wait_for_all()

  def release(self) -> None:
    """Releases the lock."""
    if self._lock is not None:
      self._lock.release()

  def __enter__(self) -> "WorkdirLock":
    return self

  def __exit__(self, *_: object) -> None:
    self.release()


def open_workdir(workdir: Path, config: Mapping, free: Collection[str] = ()) -> WorkdirLock:
  """Creates the folder of a run, or checks that it belongs to this run, and locks it.

  With several processes the writer does it, and all of them raise its error.

  Args:
    workdir: the folder; new, empty, or of an earlier start of the same run.
    config: configuration of the run, as JSON values; saved as `config.json`.
    free: dotted names of settings, or of groups of them, that a run may change when it
      continues.

  Returns:
    The lock of the folder, a context manager that releases it.

  Raises:
    UserError: if the folder can't be written, is in use by another process, holds other
      files, or holds a run with another configuration.
  """
  with shared_errors():
    lock = _open(workdir, config, free) if is_writer() else None
  wait_for_all()
  return WorkdirLock(lock)


def _open(workdir: Path, config: Mapping, free: Collection[str]) -> FolderLock:
  try:
    workdir.mkdir(parents=True, exist_ok=True)
    probe = workdir / _PROBE
    probe.write_text("")
    probe.unlink(missing_ok=True)
    _check_ours(workdir)
    lock = FolderLock(workdir)
  except OSError as error:
    raise UserError(
      f"workdir {workdir} can't be written: {error.strerror}. Give a writable folder"
    ) from None
  try:
    _write_config(workdir, config, free)
  except BaseException:
    lock.release()
    raise
  return lock


def _check_ours(workdir: Path) -> None:
  if read_config(workdir) is not None:
    return
  # Files left by a start that was killed in this very module don't count.
  ours = {_PROBE, _UNFINISHED, LOCK}
  others = sorted(path.name for path in workdir.iterdir() if path.name not in ours)
  if others:
    raise UserError(
      f"workdir {workdir} holds {', '.join(others[:3])}{' ...' * (len(others) > 3)} but "
      f"no {CONFIG}: it is not the folder of a run. Give a new or an empty one"
    )


def _write_config(workdir: Path, config: Mapping, free: Collection[str]) -> None:
  if (saved := read_config(workdir)) is not None:
    _compare(workdir, flatten(saved), flatten(config), free)
  temporary = workdir / _UNFINISHED
  temporary.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
  temporary.replace(workdir / CONFIG)


def read_config(workdir: Path) -> dict | None:
  """Reads the configuration saved with a run.

  Args:
    workdir: folder of the run.

  Returns:
    The configuration as JSON values; None if the folder has none.

  Raises:
    UserError: if the file is not a JSON object.
  """
  path = workdir / CONFIG
  if not path.is_file():
    return None
  try:
    config = json.loads(path.read_text(encoding="utf-8"))
  except ValueError as error:
    raise UserError(f"{path} is not the configuration of a run: {error}") from None
  if not isinstance(config, dict):
    raise UserError(
      f"{path} is not the configuration of a run: it holds a {type(config).__name__} and "
      "not an object"
    )
  return config


def _compare(workdir: Path, saved: Mapping, given: Mapping, free: Collection[str]) -> None:
  missing, groups = object(), tuple(f"{name}." for name in free)
  for name in sorted(saved.keys() | given.keys()):
    if name in free or name.startswith(groups):
      continue
    before, now = saved.get(name, missing), given.get(name, missing)
    if before != now:
      now, before = ("absent" if x is missing else repr(x) for x in (now, before))
      raise UserError(
        f"{name} is {now}, but the run in {workdir} has {before}. Give the same "
        "configuration to continue, or another workdir. Settings that may change are "
        f"{', '.join(sorted(free))}"
      )
