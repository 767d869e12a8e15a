"""Loggers: where the metrics and samples of a run go."""

from pgax.runs.loggers.json_lines import JsonLines
from pgax.runs.loggers.protocol import SUPERVISED, Logger, by_stage
from pgax.runs.loggers.several import BUILT_IN, Loggers, check_loggers, open_loggers
from pgax.runs.loggers.tensorboard import TensorBoard

__all__ = [
  "BUILT_IN",
  "SUPERVISED",
  "JsonLines",
  "Logger",
  "Loggers",
  "TensorBoard",
  "by_stage",
  "check_loggers",
  "open_loggers",
]
