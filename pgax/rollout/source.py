"""Sources: where the data of each step comes from.

A training stage is a source and an update. Completions sampled from the current policy, the
same some steps late, stored completions, worked solutions and preference pairs are sources.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import jax

from pgax.distributed.placement import put
from pgax.errors import UserError
from pgax.models.lora import PolicyParams
from pgax.types import PyTree, Step


class SourceState(NamedTuple):
  """The state of a source, as a checkpoint holds it.

  Attributes:
    position: position in the data, as JSON values.
    in_flight: trained parameters that data which has been requested, but not yet learned
      from, is sampled with; the oldest first.
  """

  position: Any
  in_flight: tuple[PyTree, ...] = ()


class StepData(Protocol):
  """The data of a step.

  Attributes:
    arrays: arguments of the update after the state by their names, on the devices.
    metrics: metrics of the data, keyed by their log names.
  """

  arrays: Mapping[str, PyTree]
  metrics: Mapping[str, float]


class Source(Protocol):
  """Where the data of each step comes from."""

  def next(self, params: PolicyParams, step: Step) -> StepData:
    """Returns the data of a step.

    Args:
      params: parameters of the policy before the step.
      step: the step, whose random key decides what is sampled.
    """

  def state(self) -> SourceState:
    """Returns the state, from which a restored source returns the same data."""

  def restore(self, state: SourceState, step: int) -> None:
    """Continues from a state.

    Args:
      state: the state.
      step: number of the step that is next.
    """

  def close(self) -> None:
    """Ends threads and connections."""


@dataclasses.dataclass(frozen=True)
class BatchData:
  """A batch from a file or a generated set: see `StepData`."""

  arrays: Mapping[str, PyTree]
  metrics: Mapping[str, float] = dataclasses.field(default_factory=dict)


class CheckedIterator:
  """A data iterator that reports a bad problem as an error of the user.

  Args:
    iterator: iterator with a position, such as that of grain.
  """

  def __init__(self, iterator: Any):
    self._iterator = iterator
    self.get_state, self.set_state = iterator.get_state, iterator.set_state

  def __iter__(self) -> "CheckedIterator":
    return self

  def __next__(self) -> Any:
    try:
      return next(self._iterator)
    except ValueError as error:  # one among too many problems to check beforehand
      raise UserError(str(error)) from error


@dataclasses.dataclass(frozen=True)
class Batches:
  """The batches of a data iterator, on the devices; they do not depend on the policy.

  Attributes:
    iterator: yields the batches.
    sharding: sharding of their rows.
    arrays: returns the arrays of a batch by their names; see `StepData`.
  """

  iterator: CheckedIterator
  sharding: jax.sharding.Sharding
  arrays: Callable[[Any], Mapping[str, PyTree]]

  def next(self, params: PolicyParams, step: Step) -> BatchData:
    """Returns the next batch."""
    del params, step
    return BatchData(put(self.arrays(next(self.iterator)), self.sharding))

  def state(self) -> SourceState:
    """Returns the position in the data."""
    return SourceState(self.iterator.get_state())

  def restore(self, state: SourceState, step: int) -> None:
    """Continues from a position."""
    del step
    self.iterator.set_state(state.position)

  def close(self) -> None:
    """Does nothing."""
