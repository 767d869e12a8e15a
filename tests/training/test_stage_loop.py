"""The loop on a stage made of numbers: what happens at which step, in which order."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import jax.numpy as jnp
import pytest

from pgax.runs.interrupt import Interrupt, check_stop
from pgax.training.health import SkippedUpdates
from pgax.training.loop import Schedule, StepResult, run_stage
from tests.runs.test_loggers import Recorder


@dataclasses.dataclass(frozen=True)
class State:
  """The number of steps done."""

  step: int


@dataclasses.dataclass(frozen=True)
class Counting:
  """A stage whose state is the number of steps."""

  schedule: Schedule
  interrupt_at: int | None = None
  interrupt: Interrupt | None = None
  name: str = "counting"
  prefix: str = "supervised/"
  shown: tuple = (("x", "x", ".1f"),)

  def step(self, state, with_samples, stop=None):
    if state.step + 1 == self.interrupt_at:
      self.interrupt.requested = True
    rows = [{"of": state.step}] if with_samples else ()
    metrics = {"x": float(state.step), "update/skipped": 0}
    return StepResult(State(state.step + 1), metrics, rows, batch=())

  def evaluate(self, state, stop=None):
    check_stop(stop)
    return {"eval/accuracy": 0.1 * state.step}, [{"at": state.step}]

  def finish(self, state):
    return State(100 + state.step)


SCHEDULE = Schedule(
  steps=5,
  eval_every=2,
  eval_first=True,
  eval_last=True,
  checkpoint_every=3,
  samples_every=4,
)


def run(stage, start=0, interrupt=None, progress=False):
  log, saved = Recorder(), []
  result = run_stage(
    stage,
    State(start),
    logger=log,
    save=saved.append,
    interrupt=interrupt or Interrupt(),
    skipped=SkippedUpdates(Path("unused"), 1, lambda: None),
    progress=progress,
  )
  return result, log.calls, [state.step for state in saved]


def test_what_happens_at_which_step():
  result, calls, saved = run(Counting(SCHEDULE))
  assert result.finished and result.state.step == 105
  assert result.evaluation == {"eval/accuracy": 0.5}
  assert saved == [3, 105]  # at a checkpoint, and at the end as the next stage begins
  evaluated = [
    x[1] for x in calls if x[0] == "scalars" and "supervised/eval/accuracy" in x[2]
  ]
  assert evaluated == [0, 2, 4, 5]
  samples = [call[1:3] for call in calls if call[0] == "samples" and call[3]]
  assert samples == [
    (0, "held_out"),
    (1, "train"),
    (4, "train"),
    (5, "train"),
    (5, "held_out"),
  ]
  assert [call[0] for call in calls].count("flush") == 2


def test_an_interrupted_stage_resumes_where_it_stopped():
  interrupt = Interrupt()
  stage = Counting(SCHEDULE, interrupt_at=3, interrupt=interrupt)
  result, _, _ = run(stage, interrupt=interrupt)
  assert not result.finished and result.state.step == 3
  result, calls, _ = run(Counting(SCHEDULE), start=3)
  assert result.finished and result.state.step == 105
  assert [call[1] for call in calls if call[0] == "scalars"] == [4, 5]


@pytest.mark.parametrize("steps", [0, 3])
def test_a_finished_stage_does_nothing(steps):
  schedule = dataclasses.replace(SCHEDULE, steps=steps, eval_first=False)
  result, calls, saved = run(Counting(schedule), start=steps)
  assert result == (State(steps), True, {}) and calls == saved == []


def test_a_state_may_count_in_an_array():
  state = dataclasses.make_dataclass("S", ["step"])(jnp.int32(5))
  result = run_stage(
    Counting(SCHEDULE),
    state,
    logger=Recorder(),
    save=lambda _: None,
    interrupt=Interrupt(),
    skipped=SkippedUpdates(Path("unused"), 1, lambda: None),
    progress=False,
  )
  assert result.finished and result.state is state


def test_the_first_evaluation_is_stopped_and_done_again():
  interrupt = Interrupt()
  interrupt.requested = True
  result, calls, saved = run(Counting(SCHEDULE), interrupt=interrupt)
  assert result == (State(0), False, {}) and calls == saved == []
  result, calls, _ = run(Counting(SCHEDULE))
  assert result.finished and calls[0][:2] == ("scalars", 0)


@dataclasses.dataclass(frozen=True)
class Watched(Counting):
  """Keeps what is on the screen while it computes."""

  read: Callable = None
  screens: list = dataclasses.field(default_factory=list)

  def step(self, state, with_samples, stop=None):
    self.screens.append(self.read())
    return super().step(state, with_samples)

  def evaluate(self, state, stop=None):
    self.screens.append(self.read())
    return super().evaluate(state, stop)


def test_the_screen_says_what_takes_long(capsys):
  stage = Watched(SCHEDULE, read=lambda: capsys.readouterr().err)
  run(stage, progress=True)
  first, second, *_ = stage.screens
  assert "0/5" in first and "compiling and evaluating the start" in first
  assert "compiling the first step" in second
  assert any("evaluating step 2" in screen for screen in stage.screens)
  assert "compiling" not in capsys.readouterr().err.split("\r")[-1]
