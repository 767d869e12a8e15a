"""Several loggers as one."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pgax.errors import UserError
from pgax.runs.loggers.json_lines import JsonLines
from pgax.runs.loggers.protocol import Logger
from pgax.runs.loggers.tensorboard import TensorBoard


class Loggers:
  """Passes everything on to several loggers.

  Args:
    loggers: the loggers, in order.
  """

  def __init__(self, loggers: Sequence[Logger]):
    self._loggers = tuple(loggers)

  def start(self, config: Mapping[str, Any]) -> None:
    """Starts each logger."""
    for logger in self._loggers:
      logger.start(config)

  def scalars(self, step: int, values: Mapping[str, float]) -> None:
    """Logs metrics to each logger."""
    for logger in self._loggers:
      logger.scalars(step, values)

  def samples(self, step: int, split: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Logs completions to each logger."""
    for logger in self._loggers:
      logger.samples(step, split, rows)

  def flush(self) -> None:
    """Flushes each logger."""
    for logger in self._loggers:
      logger.flush()

  def close(self) -> None:
    """Closes each logger."""
    for logger in self._loggers:
      logger.close()


BUILT_IN = {"jsonl": JsonLines, "tensorboard": TensorBoard}


def open_loggers(
  loggers: Sequence[str | Logger], workdir: Path, last_steps: Mapping[str, int]
) -> Loggers:
  """Opens the loggers of a run; JSON lines are always among them, as the run's record.

  Args:
    loggers: names of built-in loggers, or loggers.
    workdir: folder of the run.
    last_steps: see `JsonLines`.

  Returns:
    One logger for all.

  Raises:
    UserError: if there is no built-in logger of a name.
  """
  check_loggers(loggers)
  names = dict.fromkeys(["jsonl", *(x for x in loggers if isinstance(x, str))])
  built_in = [BUILT_IN[name](workdir, last_steps) for name in names]
  return Loggers([*built_in, *(x for x in loggers if not isinstance(x, str))])


def check_loggers(loggers: Sequence[str | Logger]) -> None:
  """Rejects names of loggers that do not exist, without opening any.

  Raises:
    UserError: with the name and the allowed ones.
  """
  for name in loggers:
    if isinstance(name, str) and name not in BUILT_IN:
      raise UserError(
        f"there is no logger {name!r}; allowed are {', '.join(sorted(BUILT_IN))}"
      )
