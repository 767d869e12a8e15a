"""Agreement of the processes of a run: values gathered, errors shared, one writer.

Every process runs the same program. What one of them alone knows, such as a signal, a file
or the rewards of its completions, goes through these functions before it decides anything.
All processes have to call them in the same order. With one process they do nothing.
"""

import contextlib
import pickle
import socket
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils

from pgax.errors import UserError

T = TypeVar("T")
E = TypeVar("E", bound=Exception)

_HEADER = 8  # bytes, the length of a message
_SHORT = 1024  # bytes of a message that takes one exchange, its header included
_SHARED = "is_shared"  # attribute of errors that all processes raise


def is_writer() -> bool:
  """Returns whether this process writes the files of a run and prints its progress."""
  return jax.process_index() == 0


def this_process() -> str:
  """Describes this process in messages."""
  return f"process {jax.process_index()} on {socket.gethostname()}"


def gather(value: T) -> list[T]:
  """Returns the value of every process, in their order.

  Values travel over the interconnect of the devices, so they should be small: rewards and
  not rollouts.

  Args:
    value: this process's value; it can be pickled.

  Returns:
    The values of all processes, the same list in each.

  Raises:
    UserError: if another process failed instead; see `shared_errors`.
  """
  if jax.process_count() == 1:
    return [value]
  values = _gather(value)
  for index, other in enumerate(values):
    if isinstance(other, _Failure):
      prefix = "" if index == 0 else f"{other.process}: "
      raise _shared(UserError(f"{prefix}{other.text}"))
  return values


class _Failure(NamedTuple):
  """Message of a process that failed instead of sending its value."""

  process: str
  text: str


def _gather(value: Any) -> list[Any]:
  message = pickle.dumps(value)
  rows = _exchange(message, _SHORT)
  lengths = [int.from_bytes(row[:_HEADER].tobytes(), "little") for row in rows]
  if (longest := _HEADER + max(lengths)) > _SHORT:
    # Powers of two, because every size compiles a program.
    rows = _exchange(message, 1 << (longest - 1).bit_length())
  ends = (_HEADER + length for length in lengths)
  return [
    pickle.loads(row[_HEADER:end].tobytes()) for row, end in zip(rows, ends, strict=True)
  ]


def _exchange(message: bytes, size: int) -> np.ndarray:
  """Gathers messages as rows of `size` bytes, longer ones cut off."""
  row = np.zeros(size, np.uint8)
  framed = (len(message).to_bytes(_HEADER, "little") + message)[:size]
  row[: len(framed)] = np.frombuffer(framed, np.uint8)
  return multihost_utils.process_allgather(row)


def wait_for_all() -> None:
  """Returns when every process has called it; raises an error of any of them."""
  gather(None)


def broadcast(value: T) -> T:
  """Returns the writer's value in every process; see `gather`."""
  return gather(value if is_writer() else None)[0]


def any_of(flag: bool) -> bool:
  """Returns whether the flag is set in any process."""
  return any(gather(bool(flag)))


@contextlib.contextmanager
def shared_errors() -> Iterator[None]:
  """Sends an error in the block to all other processes, which raise it as well.

  They raise it in their next call of this module, which therefore has to be the next thing
  that they do together: no program may run on the devices of several processes before.
  """
  try:
    yield
  except Exception as error:
    if jax.process_count() > 1 and not getattr(error, _SHARED, False):
      _gather(_Failure(this_process(), str(error) or type(error).__name__))
      _shared(error)
    raise


def _shared(error: E) -> E:
  """Marks an error that all processes raise, so that it is not sent again."""
  setattr(error, _SHARED, True)
  return error


def on_writer(function: Callable[[], T]) -> T:
  """Calls a function in the writer alone, and returns its result in every process.

  Args:
    function: works on the host; its result can be pickled.

  Returns:
    The function's result.

  Raises:
    UserError: in the other processes, if the function raises an error in the writer.
  """
  with shared_errors():
    result = function() if is_writer() else None
  return broadcast(result)
