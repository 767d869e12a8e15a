"""What a study runs: pure functions of one run, which it maps over settings and seeds."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pgax.types import Array, PyTree

Numbers = Mapping[str, Array | float]
Metrics = Mapping[str, Array]


def _as_they_are(metrics: Mapping[str, Any]) -> Mapping[str, Any]:
  return metrics


def no_data(seeds: Sequence[int]) -> tuple[()]:
  """The data of a program that needs none."""
  del seeds
  return ()


@dataclasses.dataclass(frozen=True)
class Program:
  """A run as pure functions of its seed and of the numbers of its setting.

  Attributes:
    steps: number of steps.
    start: returns the states before the first step, batched over runs, given numbers
      `[R]` by path and `[R]` seeds. It is called on the host and may compile what it needs.
    step: computes a step: numbers, a state, the step's data and its index in, the next
      state and metrics out. It can be traced.
    data: returns the data of some seeds, arrays `[seeds, steps, ...]` on the host.
    evaluate: computes metrics of a state, given numbers, state and seed; None for none.
    eval_every: number of steps between evaluations, a divisor of `steps`. There is one
      before the first step, too.
    finish: turns the metrics of a chunk of runs, on the host, into arrays `[R, ...]` by
      name. Those of evaluations have the prefix `eval/`.
  """

  steps: int
  start: Callable[[Numbers, Sequence[int]], PyTree]
  step: Callable[[Numbers, PyTree, PyTree, Array], tuple[PyTree, Metrics]]
  data: Callable[[Sequence[int]], PyTree] = no_data
  evaluate: Callable[[Numbers, PyTree, Array], Metrics] | None = None
  eval_every: int = 0
  finish: Callable[[Mapping[str, Any]], Mapping[str, Any]] = _as_they_are

  def __post_init__(self):
    if self.steps < 1:
      raise ValueError(f"steps is {self.steps}; a study needs at least 1")
    if self.evaluate and (self.eval_every < 1 or self.steps % self.eval_every):
      raise ValueError(
        f"steps is {self.steps} and the evaluation is every {self.eval_every} steps; in a "
        "study the number of steps must be a multiple of it"
      )
