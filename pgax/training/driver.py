"""The driver of every run: stages in order, checkpoints, logs, interrupts."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from pgax.distributed.hosts import is_writer, shared_errors, wait_for_all
from pgax.errors import UserError
from pgax.rollout.source import Source, SourceState
from pgax.runs.checkpoint import Checkpoints
from pgax.runs.interrupt import Interrupt
from pgax.runs.loggers import Logger, open_loggers
from pgax.runs.workdir import WorkdirLock
from pgax.training.health import SkippedUpdates
from pgax.training.loop import Stage, StageResult, run_stage
from pgax.training.profile import Profiler
from pgax.types import PyTree

DEFAULT_LOGGERS = ("jsonl", "tensorboard")
_SOURCES, _FORMAT = "sources", "format"
_THIS_FORMAT = 2  # of the data in a checkpoint


class Run(Protocol):
  """Everything that stays the same from step to step; the state is passed on.

  A state has the fields `step`, `total_steps`, `key` and `in_flight`, and a property
  `policy`; see `learner.state.TrainState`.

  Attributes:
    abstract: shapes and shardings of the state.
    sources: sources of all stages, by name.
    checkpoints: checkpoints of the run.
    frozen: names of the fields of the state that no step changes.
    max_skipped: number of skipped updates in a row that stops the run.
  """

  abstract: PyTree
  sources: Mapping[str, Source]
  checkpoints: Checkpoints
  frozen: Sequence[str]
  max_skipped: int

  def start(self) -> PyTree:
    """Returns the state of a new run."""

  def data(self, state: PyTree) -> dict[str, Any]:
    """Returns JSON values to save with a state, besides the states of sources."""

  def resume(self, data: Mapping[str, Any]) -> None:
    """Takes the JSON values that were saved with the state that the run continues from."""

  def last_steps(self, state: PyTree) -> dict[str, int]:
    """Returns the last step of each logged stage that is not done again."""

  def stages(self, state: PyTree) -> Iterator[Stage]:
    """Yields the stages that follow a state."""


def drive(
  run: Run,
  workdir: Path,
  lock: WorkdirLock,
  record: Mapping,
  loggers: Sequence[str | Logger],
  progress: bool,
  profiler: Profiler | None = None,
) -> StageResult:
  """Runs the stages that are left, from the latest checkpoint or a new state.

  Args:
    run: the run.
    workdir: its folder, already open.
    lock: lock of the folder, checked before every checkpoint.
    record: configuration of the run, as JSON values.
    loggers: loggers, or their names.
    progress: whether to show progress bars.
    profiler: writes a trace of some steps of the last stage; None for none.

  Returns:
    The result of the last stage that was run.
  """
  with contextlib.ExitStack() as stack:
    stack.callback(run.checkpoints.close)
    for source in run.sources.values():
      stack.callback(source.close)
    state = restore(run) if run.checkpoints.latest() is not None else run.start()
    with shared_errors():
      logger = open_loggers(loggers, workdir, run.last_steps(state))
    stack.callback(logger.close)
    if profiler is not None:
      stack.callback(profiler.close)

    def save_checked(state: PyTree) -> None:
      lock.check()
      save(run, state)

    with shared_errors():
      logger.start(record)
    wait_for_all()
    result = StageResult(state, False, {})
    skipped = SkippedUpdates(workdir, run.max_skipped, run.checkpoints.latest)
    with Interrupt() as interrupt:
      for stage in run.stages(state):
        if result.finished and interrupt.stop():  # between two stages
          result = result._replace(finished=False)
          break
        result = run_stage(
          stage,
          result.state,
          logger=logger,
          save=save_checked,
          interrupt=interrupt,
          skipped=skipped,
          profiler=None if stage.prefix else profiler,
          progress=progress and is_writer(),
        )
        if not result.finished:
          break
      with shared_errors():
        logger.flush()
      save_checked(result.state)
      run.checkpoints.wait()
  return result


def save(run: Run, state: PyTree) -> None:
  """Starts saving a checkpoint, which is written while the run goes on.

  Args:
    run: the run.
    state: its state.
  """
  states = {name: source.state() for name, source in run.sources.items()}
  in_flight = tuple(params for x in states.values() for params in x.in_flight)
  sources = {
    name: {"position": x.position, "in_flight": len(x.in_flight)}
    for name, x in states.items()
  }
  data = {_FORMAT: _THIS_FORMAT, _SOURCES: sources, **run.data(state)}
  number = int(state.total_steps)
  state = state.replace(in_flight=in_flight)
  run.checkpoints.save(number, state, data, run.frozen, wait=False)


def restore(run: Run) -> PyTree:
  """Restores the state of the latest checkpoint, and that of the sources.

  Args:
    run: the run, which has a checkpoint.

  Returns:
    The state.

  Raises:
    UserError: if the checkpoint is of an earlier version or another configuration.
  """
  data = run.checkpoints.restore_data()
  if data.get(_FORMAT) != _THIS_FORMAT:
    raise UserError(
      "the latest checkpoint is from an earlier version of pgax, whose runs can't be "
      "continued; start in a new workdir"
    )
  count = sum(x["in_flight"] for x in data[_SOURCES].values())
  like = run.abstract.replace(in_flight=(run.abstract.params,) * count)
  state, data = run.checkpoints.restore(like)
  run.resume(data)
  in_flight, step = list(state.in_flight), int(state.step)
  for name, source in run.sources.items():
    saved = data[_SOURCES][name]
    params = tuple(in_flight.pop(0) for _ in range(saved["in_flight"]))
    source.restore(SourceState(saved["position"], params), step)
  return state.replace(in_flight=())
