"""The training loop, which drives every stage of every run."""

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from tqdm import tqdm

from pgax.distributed.hosts import shared_errors, wait_for_all
from pgax.learner.update import Update
from pgax.rollout.metrics import Stopwatch
from pgax.rollout.source import Source
from pgax.runs.interrupt import Interrupt, StoppedError, check_stop
from pgax.runs.loggers import Logger
from pgax.training.health import SkippedUpdates, check_sampler
from pgax.training.profile import Profiler, StepTimes
from pgax.types import PyTree, Step

Metrics = Mapping[str, float]
Rows = Sequence[Mapping[str, Any]]  # completions, as rows of `samples.jsonl`


@dataclasses.dataclass(frozen=True)
class Schedule:
  """What a stage does at each of its steps.

  Attributes:
    steps: number of steps.
    eval_every: number of steps between evaluations; 0 for none.
    eval_first: whether to evaluate before the first step.
    eval_last: whether to evaluate after the last step, regardless of `eval_every`.
    checkpoint_every: number of steps between checkpoints; there is one after the last step.
    samples_every: number of steps between logged completions; those of the first and of the
      last step are always logged. 0 for none.
  """

  steps: int
  eval_every: int
  eval_first: bool
  eval_last: bool
  checkpoint_every: int
  samples_every: int = 0

  def evaluates(self, step: int) -> bool:
    """Returns whether there is an evaluation after a step."""
    due = bool(self.eval_every) and step % self.eval_every == 0
    return due or (self.eval_last and step == self.steps)

  def checkpoints(self, step: int) -> bool:
    """Returns whether there is a checkpoint after a step."""
    return step % self.checkpoint_every == 0 or step == self.steps

  def samples(self, step: int) -> bool:
    """Returns whether completions of a step are logged."""
    due = bool(self.samples_every) and step % self.samples_every == 0
    return due or (bool(self.samples_every) and step in (1, self.steps))


class StepResult(NamedTuple):
  """Result of a step.

  Attributes:
    state: the next state.
    metrics: metrics, by name.
    rows: completions, if they were asked for.
    batch: arrays that it learned from.
  """

  state: PyTree
  metrics: Metrics
  rows: Rows
  batch: PyTree


Stop = Callable[[], bool] | None


def _nothing(*_: Any) -> Rows:
  return ()


def _no_metrics(*_: Any) -> Metrics:
  return {}


def _unchanged(state: PyTree) -> PyTree:
  return state


@dataclasses.dataclass(frozen=True)
class Stage:
  """A stage of training: a source of data, an update that learns from it, an evaluation.

  Supervised steps, reinforcement and reward models differ in these alone.

  Attributes:
    name: name in the progress bar.
    schedule: what happens at each step.
    source: returns the data of each step.
    update: returns the jitted update of a step, by the step's number: a state and the
      arrays of the data by their names in, the next state and an `Update` out.
    evaluate: evaluates a state on held-out data; returns metrics, and completions as rows.
      It raises `StoppedError` if its second argument, asked between batches, says so.
    measure: returns further metrics of a step, given its data and the metrics so far.
    samples: returns completions of a step as rows, given its data and its `Update`.
    finish: returns the state that the next stage begins with.
    prefix: prefix of the names of its metrics in the log; see `runs.loggers`.
    shown: metrics to show in the progress bar: label, name and format of each.
  """

  name: str
  schedule: Schedule
  source: Source
  update: Callable[[int], Callable]
  evaluate: Callable[[PyTree, Stop], tuple[Metrics, Rows]]
  measure: Callable[[Any, Metrics], Metrics] = _no_metrics
  samples: Callable[[Any, Update], Rows] = _nothing
  finish: Callable[[PyTree], PyTree] = _unchanged
  prefix: str = ""
  shown: Sequence[tuple[str, str, str]] = (
    ("accuracy", "eval/accuracy", ".1%"),
    ("loss", "loss", ".3f"),
  )

  def step(self, state: PyTree, with_samples: bool, stop: Stop = None) -> StepResult:
    """Takes the data of a step from the source and learns from it.

    Args:
      state: the state.
      with_samples: whether to return completions.
      stop: whether to stop, asked once the data is there; None never stops.

    Raises:
      StoppedError: if it was stopped; the state and the position in the data are those
        before the step.
    """
    cpu, before, number = time.process_time(), self.source.state(), int(state.step)
    data = self.source.next(state.policy, Step(number, state.total_steps, state.key))
    try:
      check_stop(stop)
    except StoppedError:
      self.source.restore(before, number)  # the run that continues samples the same again
      raise
    watch = Stopwatch()
    state, update = self.update(number)(state, **data.arrays)
    metrics = {**data.metrics, "time/train": watch.lap(state, update)}
    metrics["time/cpu"] = time.process_time() - cpu
    metrics |= self.measure(data, metrics)
    metrics |= {name: value.item() for name, value in update.metrics.items()}
    check_sampler(metrics)
    rows = self.samples(data, update) if with_samples else ()
    batch = {**data.arrays, "advantages": update.advantages}
    return StepResult(state, metrics, rows, batch)


class StageResult(NamedTuple):
  """Result of a stage.

  Attributes:
    state: the last state.
    finished: whether all steps are done; False after an interrupt.
    evaluation: metrics of the last evaluation; empty if there was none in this call.
  """

  state: PyTree
  finished: bool
  evaluation: Metrics


def run_stage(
  stage: Stage,
  state: PyTree,
  *,
  logger: Logger,
  save: Callable[[PyTree], None],
  interrupt: Interrupt,
  skipped: SkippedUpdates,
  profiler: Profiler | None = None,
  progress: bool = True,
) -> StageResult:
  """Runs a stage to its end, or until an interrupt.

  Args:
    stage: the stage.
    state: its state; `state.step` is the number of steps done.
    logger: receives metrics and completions.
    save: saves a checkpoint of a state; begins with a call of `distributed.hosts`.
    interrupt: requests to stop.
    skipped: watches over updates that are not finite.
    profiler: writes a trace of some steps; None for none.
    progress: whether to show a progress bar.

  Returns:
    A `StageResult`.

  Raises:
    DivergedError: see `SkippedUpdates`.
  """
  schedule, step = stage.schedule, int(state.step)
  evaluation: Metrics = {}

  stop = interrupt.stop
  with tqdm(
    total=schedule.steps, initial=step, disable=not progress, desc=stage.name
  ) as bar:
    display = _Display(stage, logger, bar, {})
    if step == 0 and schedule.eval_first:
      display.announce("compiling and evaluating the start")
      try:
        evaluation, rows = stage.evaluate(state, stop)
      except StoppedError:  # the run that continues does it again
        return StageResult(state, False, {})
      display.log(0, evaluation, held_out=rows)
    display.announce("compiling the first step")
    times = StepTimes()
    while step < schedule.steps and not _should_stop(times, stop):
      if profiler:
        profiler.before(step + 1)
      try:
        result = stage.step(state, schedule.samples(step + 1), stop)
      except StoppedError:
        break
      step, (state, metrics, rows, batch), evaluated = step + 1, result, ()
      if profiler:
        profiler.after(step)
      if schedule.evaluates(step):
        display.announce(f"evaluating step {step}")
        with times.part("evaluation"):
          evaluation, evaluated = stage.evaluate(state)
        metrics = {**metrics, **evaluation}
      last = evaluated if step == schedule.steps else ()
      display.log(step, {**metrics, **times.lap()}, train=rows, held_out=last)
      skipped.check(stage.prefix.rstrip("/") or "step", step, metrics, batch)
      if step == schedule.steps:
        state = stage.finish(state)
      if schedule.checkpoints(step):
        with times.part("checkpoint"):
          with shared_errors():
            logger.flush()  # rows before a checkpoint are never written again
          save(state)
      display.advance()
  return StageResult(state, step >= schedule.steps, evaluation)


def _should_stop(times: StepTimes, stop: Callable[[], bool]) -> bool:
  """Returns whether to stop; every process must call it."""
  with times.part("waiting"):
    return stop()


class _Display(NamedTuple):
  """Writes metrics to the logger and to the progress bar."""

  stage: Stage
  logger: Logger
  bar: tqdm
  shown: dict[str, str]

  def log(self, step: int, metrics: Metrics, **samples: Rows) -> None:
    """Logs metrics, keeps those that the bar shows, and logs completions by split."""
    prefix = self.stage.prefix
    with shared_errors():  # such as a full disk, which the writer alone finds
      self.logger.scalars(step, {f"{prefix}{name}": x for name, x in metrics.items()})
      for split, rows in samples.items():
        self.logger.samples(step, split, rows)
    wait_for_all()
    for label, name, form in self.stage.shown:
      if name in metrics:
        self.shown[label] = format(metrics[name], form)

  def announce(self, doing: str) -> None:
    """Shows the current activity, behind the metrics."""
    metrics = (f"{label}={value}" for label, value in self.shown.items())
    self.bar.set_postfix_str(", ".join([*metrics, doing]))

  def advance(self) -> None:
    """Moves the bar by a step."""
    self.bar.set_postfix(self.shown, refresh=False)
    self.bar.update()
