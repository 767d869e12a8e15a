"""Checkpoints of any pytree, with JSON data such as the position in a data set."""

import contextlib
import dataclasses
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp

from pgax.distributed.hosts import is_writer, on_writer, shared_errors, wait_for_all
from pgax.errors import UserError, check_at_least
from pgax.runs.integrity import CHECKPOINTS, FROZEN, newest_good, write_digests
from pgax.types import PyTree

_FROZEN_FIELDS = "frozen_fields"  # key of a checkpoint's data


@dataclasses.dataclass(frozen=True)
class CheckpointConfig:
  """When to save checkpoints, and how many to keep.

  Attributes:
    every: number of steps between checkpoints; there is one after the last step.
    keep: number of checkpoints to keep, the latest ones.
  """

  every: int = 25
  keep: int = 2

  def __post_init__(self):
    check_at_least(self, 1, "every", "keep")


class Checkpoints:
  """The checkpoints of a run, each of them complete or absent, and checked by its digests.

  All processes of a run take part in each call; the writer checks files for all of them.

  Args:
    workdir: folder of the run; checkpoints are in its folder `checkpoints`.
    keep: number of checkpoints to keep, the latest ones.
    read_only: whether to leave the folder unchanged. Otherwise damaged checkpoints are
      moved out of the way.

  Raises:
    UserError: if all checkpoints are damaged.
  """

  def __init__(self, workdir: Path, keep: int = 2, read_only: bool = False):
    options = ocp.CheckpointManagerOptions(
      max_to_keep=None if read_only else keep,
      read_only=read_only,
      create=not read_only,
      # Else a folder that can't be made is waited for, for twenty minutes.
      async_options=ocp.AsyncOptions(create_directories_asynchronously=False),
    )
    self._thread = ThreadPoolExecutor(1)
    self._saving = None  # number of the checkpoint that is being written, and its end
    self.workdir = workdir.absolute()
    self._folder = self.workdir / CHECKPOINTS
    self._frozen_saved = False  # by this run; those of an earlier start may be others
    self._latest = on_writer(lambda: newest_good(self.workdir, read_only))
    handlers = {  # named, so that a new process can read shapes before it restores
      "state": ocp.StandardCheckpointHandler(),
      "data": ocp.JsonCheckpointHandler(),
    }
    self._manager = ocp.CheckpointManager(
      self._folder, options=options, item_handlers=handlers
    )

  def latest(self) -> int | None:
    """Returns the number of the latest good checkpoint, or None; see `wait`."""
    self.wait()
    return self._latest

  def save(
    self,
    number: int,
    state: PyTree,
    data: Mapping[str, Any],
    frozen: Sequence[str] = (),
    wait: bool = True,
  ) -> None:
    """Saves a checkpoint, unless the latest one has the same number.

    A checkpoint is complete or absent, whenever the process ends.

    Args:
      number: number of the checkpoint, larger than those before.
      state: pytree of arrays.
      data: JSON values to save with it.
      frozen: names of fields of the state that the run never changes, such as the
        parameters under adapters. They are saved once, in the folder `frozen` beside the
        checkpoints, and not in every checkpoint.
      wait: whether to return when it is written; otherwise it is written while the caller
        continues, who may donate the state, and `wait` or the next call reports errors.

    Raises:
      UserError: if it, or the one before it, can't be written, for instance on a full disk.
        Earlier checkpoints are unchanged.
    """
    if number == self.latest():
      return
    with self._errors(number):
      if frozen:
        if not self._frozen_saved:
          self._save_frozen({name: getattr(state, name) for name in frozen})
        state, data = _without(state, frozen), {**data, _FROZEN_FIELDS: list(frozen)}
      if not wait and jax.default_backend() == "cpu":
        # There the file is written from the arrays themselves, elsewhere from copies.
        state = jax.tree.map(jnp.copy, state)
      args = {"state": ocp.args.StandardSave(state), "data": ocp.args.JsonSave(data)}
      self._manager.save(number, args=ocp.args.Composite(**args))
      self._saving = number, self._thread.submit(self._finish, number)
    if wait:
      self.wait()

  def wait(self) -> None:
    """Waits until the checkpoint that is being written is complete.

    Raises:
      UserError: if it can't be written.
    """
    if self._saving is None:
      return
    number, end = self._saving
    with shared_errors(), self._errors(number):
      end.result()
    wait_for_all()
    self._saving, self._latest = None, number

  def _finish(self, number: int) -> None:
    """Waits until a checkpoint is written, and writes its digests."""
    self._manager.wait_until_finished()
    if is_writer():
      write_digests(self.workdir, number)

  @contextlib.contextmanager
  def _errors(self, number: int) -> Iterator[None]:
    """Adds to an error which checkpoint can't be written, and which is the latest."""
    try:
      yield
    except (OSError, ValueError) as error:  # tensorstore raises the latter on a full disk
      self._saving, latest = None, self._latest
      last = "there is none yet" if latest is None else f"the last complete one is {latest}"
      raise UserError(
        f"checkpoint {number} can't be written to {self._folder} ({last}): "
        f"{_shortened(str(error).splitlines()[0])}"
      ) from error

  def _save_frozen(self, fields: Mapping[str, PyTree]) -> None:
    with ocp.Checkpointer(ocp.StandardCheckpointHandler()) as writer:
      args = ocp.args.StandardSave(dict(fields))
      writer.save(self.workdir / FROZEN, args=args, force=True)
    self._frozen_saved = True

  def restore(self, like: PyTree) -> tuple[PyTree, dict[str, Any]]:
    """Reads the latest checkpoint.

    Args:
      like: pytree of shapes and shardings to restore to.

    Returns:
      The state and its JSON data.

    Raises:
      UserError: if there is no checkpoint, or its arrays differ from `like`; the message
        names the first difference.
    """
    number, data = self._number(), self.restore_data()
    frozen = data.pop(_FROZEN_FIELDS, ())
    _check_same(self._folder / str(number), self._shapes(number, frozen), like)
    args = ocp.args.Composite(state=ocp.args.StandardRestore(_without(like, frozen)))
    state = self._manager.restore(number, args=args)["state"]
    if frozen:
      fields = {name: getattr(like, name) for name in frozen}
      state = state.replace(**_restore_part(self.workdir / FROZEN, fields))
      self._frozen_saved = True
    return state, data

  def _shapes(self, number: int, frozen: Sequence[str]) -> Mapping[str, PyTree]:
    """Returns the shapes of a saved state, its frozen fields included."""
    saved = self._manager.item_metadata(number)["state"]
    if not frozen:
      return saved
    handler = ocp.PyTreeCheckpointHandler()
    return {**saved, **handler.metadata(self.workdir / FROZEN).tree}

  def restore_data(self) -> dict[str, Any]:
    """Reads the JSON data of the latest checkpoint.

    Raises:
      UserError: if there is no checkpoint, or it was saved without data.
    """
    number = self._number()
    args = ocp.args.Composite(data=ocp.args.JsonRestore())
    try:
      return self._manager.restore(number, args=args)["data"]
    except (KeyError, FileNotFoundError, ValueError) as error:
      raise UserError(
        f"checkpoint {self._folder / str(number)} has no data of a run that can be "
        "continued; it may be from an earlier version of pgax. Start in a new workdir"
      ) from error

  def check_fields(self, like: Mapping[str, PyTree]) -> None:
    """Checks by shapes alone that `restore_fields` will work.

    Args:
      like: fields of the state to restore, as shapes.

    Raises:
      UserError: if there is no checkpoint, or one of the fields differs; the message names
        the first difference.
    """
    number = self._number()
    state = self._shapes(number, self.restore_data().get(_FROZEN_FIELDS, ()))
    saved = {name: state.get(name, ()) for name in like}
    _check_same(self._folder / str(number), saved, like)

  def restore_fields(self, like: Mapping[str, PyTree]) -> dict[str, PyTree]:
    """Reads some fields of the latest state, and nothing else of it.

    Args:
      like: fields of the state to restore, as shapes with shardings.

    Returns:
      The fields.

    Raises:
      UserError: see `check_fields`.
    """
    self.check_fields(like)
    frozen = self.restore_data().get(_FROZEN_FIELDS, ())
    parts = {self._folder / str(self._number()) / "state": like.keys() - set(frozen)}
    parts[self.workdir / FROZEN] = like.keys() & set(frozen)
    fields = dict(like)
    for folder, names in parts.items():
      fields |= _restore_part(folder, {name: like[name] for name in names})
    return fields

  def close(self) -> None:
    """Releases the folder, after the checkpoint that is being written."""
    self._thread.shutdown()
    try:
      self._manager.close()
    except (OSError, ValueError) as error:
      # An earlier call has raised it, or the run ends by another error.
      warnings.warn(f"the last checkpoint was not written: {error}", stacklevel=2)

  def _number(self) -> int:
    number = self.latest()
    if number is None:
      raise UserError(f"{self._folder} holds no checkpoint; train a run first")
    return number


@contextlib.contextmanager
def read_checkpoints(workdir: Path) -> Iterator[Checkpoints]:
  """Opens the checkpoints of a run, leaving its folder unchanged.

  Args:
    workdir: folder of the run.

  Yields:
    Its `Checkpoints`.

  Raises:
    UserError: if the folder has no checkpoints.
  """
  if not has_checkpoints(workdir):
    raise UserError(f"{workdir} holds no checkpoints; give the folder of a run")
  checkpoints = Checkpoints(workdir, read_only=True)
  try:
    yield checkpoints
  finally:
    checkpoints.close()


def has_checkpoints(workdir: Path) -> bool:
  """Returns whether a folder may hold checkpoints of a run."""
  return (workdir / CHECKPOINTS).is_dir()


def _without(state: PyTree, fields: Sequence[str]) -> PyTree:
  """Returns a state without some of its fields."""
  return state.replace(**dict.fromkeys(fields, ())) if fields else state


def _restore_part(folder: Path, like: Mapping[str, PyTree]) -> dict[str, PyTree]:
  """Reads some fields of a saved state; those without arrays are returned as they are."""
  wanted = {name: field for name, field in like.items() if jax.tree.leaves(field)}
  if not wanted:
    return dict(like)
  arguments = ocp.args.PyTreeRestore(
    item=wanted,
    restore_args=ocp.checkpoint_utils.construct_restore_args(wanted),
    partial_restore=True,
  )
  return dict(like) | ocp.PyTreeCheckpointHandler().restore(folder, args=arguments)


def _shortened(text: str) -> str:
  """Removes the middle of a long message, whose reason follows long paths."""
  return text if len(text) <= 300 else f"{text[:150]} ... {text[-150:]}"


def _shapes(tree: PyTree) -> dict[str, tuple[int, ...]]:
  """Shape of every leaf by its dotted path, the same for a saved tree and a live one."""

  def shape(leaf: Any) -> tuple[int, ...]:
    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
      leaf = jax.eval_shape(jax.random.key_data, leaf)  # keys are saved as words
    return tuple(leaf.shape)

  return {
    jax.tree_util.keystr(path, simple=True, separator="."): shape(leaf)
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
  }


def _check_same(folder: Path, saved: PyTree, like: PyTree) -> None:
  before, now = _shapes(saved), _shapes(like)
  for name in sorted(before.keys() | now.keys()):
    if before.get(name) != now.get(name):
      raise UserError(
        f"checkpoint {folder} does not fit the configuration: {name} is "
        f"{before.get(name, 'absent')} in the checkpoint and {now.get(name, 'absent')} in "
        "this run"
      )
