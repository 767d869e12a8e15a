"""Checkpoints: state, random key and data positions of a run, saved together."""

from pathlib import Path

import jax
import orbax.checkpoint as ocp

from pgax.training.errors import UserError
from pgax.training.state import TrainState
from pgax.types import PyTree

_POLICY = ("base", "params")  # the fields of a state that its policy is made of


class Checkpoints:
  """The checkpoints of a run, each of them complete or absent.

  Args:
    workdir: of the run; checkpoints go into its folder `checkpoints`.
    keep: how many of the last ones stay.
    read_only: whether to leave the folder as it is.
  """

  def __init__(self, workdir: Path, keep: int = 2, read_only: bool = False):
    options = ocp.CheckpointManagerOptions(
      max_to_keep=None if read_only else keep,
      read_only=read_only,
      create=not read_only,
      # The next step donates the buffers that are being saved; nothing may read them then.
      enable_async_checkpointing=False,
    )
    self._folder = (workdir / "checkpoints").absolute()
    handlers = {  # named, so that a new process can read shapes before it restores
      "state": ocp.StandardCheckpointHandler(),
      "positions": ocp.JsonCheckpointHandler(),
    }
    self._manager = ocp.CheckpointManager(
      self._folder, options=options, item_handlers=handlers
    )

  def latest(self) -> int | None:
    """Step of the last complete checkpoint, or None."""
    return self._manager.latest_step()

  def save(self, state: TrainState, positions: dict[str, dict]) -> None:
    """Saves a state with the positions of its data iterators; at most once a step.

    Args:
      state: the state.
      positions: of each data iterator, by its name.

    Raises:
      UserError: if it can't be written, on a full disk say; the last one is as it was.
    """
    step = int(state.step)
    if step == self.latest():
      return
    args = {
      "state": ocp.args.StandardSave(state),
      "positions": ocp.args.JsonSave(positions),
    }
    last = self.latest()
    try:
      self._manager.save(step, args=ocp.args.Composite(**args))
    except (OSError, ValueError) as error:  # tensorstore tells of a full disk by the latter
      kept = "there is none yet" if last is None else f"the last complete one is {last}"
      raise UserError(
        f"checkpoint {step} can't be written to {self._folder} ({kept}): "
        f"{str(error).splitlines()[0][:300]}"
      ) from error

  def restore(self, like: TrainState) -> tuple[TrainState, dict[str, dict]]:
    """Reads the last checkpoint.

    Args:
      like: of the wanted structure, shapes and shardings; see `state.abstract_state`.

    Returns:
      The state and the positions saved with it.

    Raises:
      UserError: if there is none, or it has other parameters than `like`; it names the
        first that differs.
    """
    step = self._last()
    saved = self._manager.item_metadata(step)["state"]
    _check_same(self._folder / str(step), saved, like)
    args = {
      "state": ocp.args.StandardRestore(like),
      "positions": ocp.args.JsonRestore(),
    }
    restored = self._manager.restore(step, args=ocp.args.Composite(**args))
    return restored["state"], restored["positions"]

  def check_params(self, like: PyTree) -> None:
    """Makes sure that `restore_params` will work, by shapes alone.

    Args:
      like: the wanted fields of the state by their names, of the wanted structure and
        shapes.

    Raises:
      UserError: if there is no checkpoint, or its policy has other parameters; it names the
        first that differs.
    """
    step = self._last()
    state = self._manager.item_metadata(step)["state"]
    saved = {name: state.get(name, ()) for name in _POLICY}
    _check_same(self._folder / str(step), saved, like)

  def restore_params(self, like: dict[str, PyTree]) -> tuple[dict[str, PyTree], int]:
    """Reads the policy's parameters of the last checkpoint, and nothing else of it.

    Args:
      like: the wanted fields of the state by their names, of the wanted structure, shapes
        and shardings.

    Returns:
      These fields, and the step of the checkpoint.

    Raises:
      UserError: as `check_params` does.
    """
    self.check_params(like)
    step, wanted = self._last(), {name: x for name, x in like.items() if x}
    arguments = ocp.args.PyTreeRestore(
      item=wanted,
      restore_args=ocp.checkpoint_utils.construct_restore_args(wanted),
      partial_restore=True,
    )
    handler = ocp.PyTreeCheckpointHandler()
    restored = handler.restore(self._folder / str(step) / "state", args=arguments)
    return like | restored, step

  def _last(self) -> int:
    step = self.latest()
    if step is None:
      raise UserError(f"{self._folder} holds no checkpoint; train a run first")
    return step

  def close(self) -> None:
    """Releases the folder."""
    self._manager.close()


def last_step(workdir: Path) -> int | None:
  """Step of a run's last complete checkpoint, or None; the folder is left as it is."""
  if not (workdir / "checkpoints").is_dir():
    return None
  checkpoints = Checkpoints(workdir, read_only=True)
  try:
    return checkpoints.latest()
  finally:
    checkpoints.close()


def _shapes(tree) -> dict[str, tuple[int, ...]]:
  """Shape of every leaf by its dotted path, which a saved tree and a live one share."""

  def shape(leaf) -> tuple[int, ...]:
    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
      leaf = jax.eval_shape(jax.random.key_data, leaf)  # keys are saved as their words
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
        f"{before.get(name, 'absent')} there and {now.get(name, 'absent')} here"
      )
