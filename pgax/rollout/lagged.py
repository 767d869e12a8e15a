"""Lagged rollouts: step `t` learns from completions of the policy before step `t - lag`.

The lag is a number of steps, never a matter of which thread is ready first. While the
devices update, completions that are sampled already are scored on the host.

Rollouts in flight are saved as the parameters that they are sampled with and the position
in the data before them. A run that continues samples them again, the same to the bit.
"""

import dataclasses
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp

from pgax.models.lora import PolicyParams
from pgax.rollout.experience import Experience
from pgax.rollout.metrics import Stopwatch
from pgax.rollout.rollouts import Rollouts
from pgax.rollout.source import SourceState
from pgax.types import PyTree, Step


@dataclasses.dataclass
class _Pending:
  """A rollout in flight.

  Attributes:
    step: number of the step that learns from it.
    params: trained parameters that it is sampled with.
    position: position in the data before it; None until sampling starts.
    experience: future of its `Experience`; None until sampling starts.
  """

  step: int
  params: PyTree
  position: Any = None
  experience: Future | None = None


class Lagged:
  """A source of rollouts that are sampled some steps before they are learned from.

  Args:
    source: samples and scores.
    lag: number of steps between the policy that samples and the one that learns; with 0
      the source behaves as the one that it wraps.
    steps: number of steps of the run; nothing is sampled for later ones.
    overlap: whether to score in other threads. They may not start programs on several
      devices or processes, whose order must be the same everywhere; then everything is
      done at once, with the same numbers.
  """

  def __init__(self, source: Rollouts, lag: int, steps: int, overlap: bool):
    self._source, self._lag, self._steps = source, lag, steps
    self._threads = ThreadPoolExecutor(lag + 1) if overlap else None
    self._pending: list[_Pending] = []

  def next(self, params: PolicyParams, step: Step) -> Experience:
    """Returns the experience of a step, after starting that of `lag` steps later.

    Args:
      params: parameters of the policy before the step.
      step: the step.

    Returns:
      An `Experience`. `time/rollout` is the number of seconds that the step waited for
      sampling, and `time/reward` the number that it waited for scores.
    """
    watch = Stopwatch()
    first = self._pending[-1].step + 1 if self._pending else step.number
    # The update donates the state's own arrays.
    trained = jax.tree.map(jnp.copy, params.trained)
    numbers = range(first, step.number + self._lag + 1)
    self._pending += [_Pending(number, trained) for number in numbers]
    for pending in self._pending:
      if pending.experience is None and pending.step < self._steps:
        self._start(pending, params.base, step.later(pending.step - step.number))
    times = {"time/rollout": watch.lap()}
    experience = self._pending.pop(0).experience.result()
    times["time/reward"] = watch.lap()
    lag = {"rollout/lag": min(self._lag, step.number)}
    return dataclasses.replace(experience, metrics={**experience.metrics, **times, **lag})

  def _start(self, pending: _Pending, base: PyTree, step: Step) -> None:
    """Samples a rollout; its scores may follow in another thread."""
    pending.position = self._source.state().position
    finish = self._source.start(PolicyParams(base, pending.params), step)
    if self._threads is not None:
      pending.experience = self._threads.submit(finish)
    else:
      pending.experience = Future()
      pending.experience.set_result(finish())

  def state(self) -> SourceState:
    """Returns the position before the rollouts in flight, and their parameters."""
    started = [x.position for x in self._pending if x.position is not None]
    position = started[0] if started else self._source.state().position
    return SourceState(position, tuple(x.params for x in self._pending))

  def restore(self, state: SourceState, step: int) -> None:
    """Samples the rollouts in flight again, from the next call of `next` on."""
    self._source.restore(SourceState(state.position), step)
    self._pending = [_Pending(step + i, params) for i, params in enumerate(state.in_flight)]

  def close(self) -> None:
    """Cancels pending rollouts and waits for the threads."""
    if self._threads is not None:
      self._threads.shutdown(cancel_futures=True)
