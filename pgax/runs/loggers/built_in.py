"""The built-in loggers by name, and several loggers as one."""

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pgax.distributed.hosts import is_writer
from pgax.errors import UserError
from pgax.runs.loggers.csv import Csv
from pgax.runs.loggers.json_lines import JsonLines
from pgax.runs.loggers.mlflow import MLflow
from pgax.runs.loggers.protocol import Logger
from pgax.runs.loggers.tensorboard import TensorBoard
from pgax.runs.loggers.weights_and_biases import WeightsAndBiases

BUILT_IN = {
  "csv": Csv,
  "jsonl": JsonLines,
  "mlflow": MLflow,
  "tensorboard": TensorBoard,
  "wandb": WeightsAndBiases,
}
_EXTRAS = ("mlflow", "wandb")  # names of loggers, of extras and of modules alike
_METHODS = ("start", "scalars", "samples", "flush", "close")


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
    """Logs completions to each logger, if there are any."""
    for logger in self._loggers if rows else ():
      logger.samples(step, split, rows)

  def flush(self) -> None:
    """Flushes each logger."""
    for logger in self._loggers:
      logger.flush()

  def close(self) -> None:
    """Closes each logger, also if another one fails to; raises the first error."""
    errors = []
    for logger in self._loggers:
      try:
        logger.close()
      except Exception as error:
        errors.append(error)
    if errors:
      raise errors[0]


def open_loggers(
  loggers: Sequence[str | Logger], workdir: Path, last_steps: Mapping[str, int]
) -> Loggers:
  """Opens the loggers of a run; JSON Lines are always among them, as the run's record.

  Args:
    loggers: names of built-in loggers, or loggers.
    workdir: folder of the run.
    last_steps: see `JsonLines`.

  Returns:
    One logger for all; in processes other than the writer, one that logs nothing.

  Raises:
    UserError: see `check_loggers`.
  """
  check_loggers(loggers)
  if not is_writer():
    return Loggers(())
  names = dict.fromkeys(["jsonl", *(x for x in loggers if isinstance(x, str))])
  built_in = [BUILT_IN[name](workdir, last_steps) for name in names]
  return Loggers([*built_in, *(x for x in loggers if not isinstance(x, str))])


def check_loggers(loggers: Sequence[str | Logger]) -> None:
  """Rejects loggers that can't be opened, without opening any.

  Args:
    loggers: names of built-in loggers, or loggers.

  Raises:
    UserError: if there is no built-in logger of a name, its package is not installed, or a
      logger lacks a method.
  """
  for logger in loggers:
    if isinstance(logger, str):
      _check_name(logger)
      continue
    for method in _METHODS:
      if isinstance(logger, type) or not callable(getattr(logger, method, None)):
        raise UserError(
          f"logger {logger!r} has no method {method!r} to call; it must be an object with "
          f"{', '.join(_METHODS)}"
        )


def _check_name(name: str) -> None:
  if name not in BUILT_IN:
    raise UserError(
      f"there is no logger {name!r}; allowed are {', '.join(sorted(BUILT_IN))}"
    )
  if name in _EXTRAS and importlib.util.find_spec(name) is None:
    raise UserError(f"logger {name!r} needs a package: pip install 'pgax[{name}]'")
