"""Rollouts that are drawn some steps before the update that learns from them.

With a lag of `k`, step `t` learns from a rollout drawn with the parameters of step
`max(0, t - k)`: a matter of counting, and never of which part is ready first. While the
devices update, completions that were drawn already are scored on the host.

What is in flight is saved as the parameters that it is drawn with and the position in the
data before it. A run that continues draws it again, the same to the bit.
"""

import dataclasses
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import flax.struct
import grain
import jax
import jax.numpy as jnp

from pgax.learner.state import TrainState, step_keys
from pgax.rewards.pool import Job, Outcome, RewardRunner
from pgax.rollout.actor import Actor
from pgax.rollout.experience import Experience
from pgax.rollout.metrics import Stopwatch
from pgax.types import PyTree


@flax.struct.dataclass
class LaggedState(TrainState):
  """The state of a run with rollouts in flight, as it is saved.

  Attributes:
    behind: trained parameters of earlier steps, the oldest first, that the rollouts of the
      next steps are drawn with.
  """

  behind: tuple[PyTree, ...] = ()

  @classmethod
  def of(cls, state: TrainState, behind: Sequence[PyTree]) -> "LaggedState":
    """Adds parameters of earlier steps to a state."""
    fields = {x.name: getattr(state, x.name) for x in dataclasses.fields(TrainState)}
    return cls(**fields, behind=tuple(behind))

  @property
  def present(self) -> TrainState:
    """The state without parameters of earlier steps."""
    fields = dataclasses.fields(TrainState)
    return TrainState(**{x.name: getattr(self, x.name) for x in fields})


class LockedRunner:
  """A reward runner that several threads can call, one at a time.

  Args:
    runner: the runner.
  """

  def __init__(self, runner: RewardRunner):
    self._runner, self._lock = runner, threading.Lock()

  def __call__(self, jobs: Sequence[Job]) -> list[Outcome]:
    """Scores jobs."""
    with self._lock:
      return self._runner(jobs)


@dataclasses.dataclass
class _Draw:
  """A rollout in flight.

  Attributes:
    step: number of the step that learns from it.
    params: trained parameters that it is drawn with.
    position: position in the data before it; None before it is drawn.
    experience: what comes of it; None before it is drawn.
  """

  step: int
  params: PyTree
  position: Any = None
  experience: Future | None = None


class Ahead:
  """Draws rollouts ahead, and scores them in other threads.

  Args:
    actor: collects experience.
    prompts: iterator that the actor takes its prompts from.
    policy: returns the policy's parameters of a state, adapters merged.
    lag: number of steps that rollouts are ahead, at least 1.
    overlap: whether to score in other threads. They may not start programs on several
      devices or processes, whose order must be the same everywhere; then everything is
      drawn at once, with the same numbers.
  """

  def __init__(
    self,
    actor: Actor,
    prompts: grain.DatasetIterator,
    policy: Callable[[TrainState], PyTree],
    lag: int,
    overlap: bool,
  ):
    self._actor, self._prompts, self._policy = actor, prompts, policy
    self._lag = lag
    self._threads = ThreadPoolExecutor(lag + 1) if overlap else None
    self._draws: list[_Draw] = []

  def restore(self, step: int, behind: Sequence[PyTree]) -> None:
    """Takes what was in flight when a checkpoint was saved.

    Args:
      step: number of the next step.
      behind: parameters that the rollouts of this and the next steps are drawn with.
    """
    self._draws = [_Draw(step + i, params) for i, params in enumerate(behind)]

  def in_flight(self, state: TrainState) -> tuple[tuple[PyTree, ...], Any]:
    """Returns what to save with a state.

    Args:
      state: the state; before the first step nothing of other steps is in flight.

    Returns:
      The parameters for `restore`, and the position in the data.
    """
    step = int(state.step)
    draws = [x for x in self._draws if x.step >= step]
    position = draws[0].position if draws else None
    behind = [x.params for x in draws[: self._lag]] if step else []
    return tuple(behind), self._prompts.get_state() if position is None else position

  def collect(self, state: TrainState, steps: int) -> Experience:
    """Returns the experience of a step, after the draw of that for `lag` steps later.

    Args:
      state: the state before the step.
      steps: number of steps of the run; nothing is drawn for later ones.

    Returns:
      An `Experience`. `time/rollout` are the seconds that the step waited for completions
      to be drawn, and `time/reward` those that it waited for scores.
    """
    step, watch = int(state.step), Stopwatch()
    self._draws = [x for x in self._draws if x.step >= step]
    last = self._draws[-1].step if self._draws else step - 1
    # The update donates the state's own arrays.
    params = jax.tree.map(jnp.copy, state.params)
    self._draws += [
      _Draw(number, params) for number in range(last + 1, step + self._lag + 1)
    ]
    for draw in self._draws:
      if draw.experience is None and draw.step < steps:
        self._start(draw, state)
    times = {"time/rollout": watch.lap()}
    experience = self._draws[0].experience.result()
    times["time/reward"] = watch.lap()
    metrics = {**experience.metrics, **times, "rollout/lag": min(self._lag, step)}
    return dataclasses.replace(experience, metrics=metrics)

  def _start(self, draw: _Draw, state: TrainState) -> None:
    """Draws a rollout; returns when its completions are there, but not their scores."""
    params = self._policy(state.replace(params=draw.params))
    key, _ = step_keys(state.key, state.total_steps + (draw.step - state.step))
    draw.position = self._prompts.get_state()
    if self._threads is None:
      draw.experience = Future()
      draw.experience.set_result(self._actor(params, key))
      return
    drawn = threading.Event()
    actor = dataclasses.replace(
      self._actor, runner=_Announcing(self._actor.runner, drawn.set)
    )

    def collect() -> Experience:
      try:
        return actor(params, key)
      finally:
        drawn.set()  # also after an error

    draw.experience = self._threads.submit(collect)
    # The update is next: it shall not compete for the devices, whose scores are due first.
    drawn.wait()

  def close(self) -> None:
    """Waits for scores that nobody will ask for."""
    if self._threads is not None:
      self._threads.shutdown(cancel_futures=True)


@dataclasses.dataclass(frozen=True)
class _Announcing:
  """A reward runner that says when it begins: all completions are there by then."""

  runner: RewardRunner
  begin: Callable[[], None]

  def __call__(self, jobs: Sequence[Job]) -> list[Outcome]:
    """Scores jobs."""
    self.begin()
    return self.runner(jobs)
